"""The schema of a result file: what every run must say, and what only some experiments must."""

import pytest

from experiments.schema import SCHEMA_OF_EXPERIMENT, ResultError, check_schema


@pytest.mark.parametrize("experiment", SCHEMA_OF_EXPERIMENT)
@pytest.mark.parametrize("block", ["metrics", "history"])
def test_an_experiment_asks_for_keys_of_its_own(
    make_result, make_run, make_reconstruction, make_classification, experiment, block
):
    own = {"diagnostics": make_run, "cub200": make_reconstruction, "ucf101": make_classification}
    result = own[experiment]() if experiment in own else make_result(experiment=experiment)
    check_schema(result, "a.json")
    with pytest.raises(ResultError, match=rf"a\.json: {block}\.\w+ is missing"):
        check_schema(result | {block: {}}, "a.json")


def test_an_experiment_without_keys_of_its_own_needs_those_of_every_run(make_result):
    result = make_result(experiment="other", metrics={}, history={})
    check_schema(result, "a.json")
    del result["parameters"]
    with pytest.raises(ResultError, match=r"a\.json: parameters is missing"):
        check_schema(result, "a.json")


@pytest.mark.parametrize("result", [[], "text", None])
def test_what_is_no_object_is_refused(result):
    with pytest.raises(ResultError, match=rf"a\.json: holds a {type(result).__name__}, not an object"):
        check_schema(result, "a.json")
