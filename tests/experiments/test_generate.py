"""Text from trained models, through the command line's own function."""

import shutil

import pytest
import torch

from experiments import generate
from experiments.arguments import parse
from experiments.checkpoints import BUILT_FROM
from experiments.config_check import ConfigError
from experiments.generate import Request
from experiments.loading import load_model
from experiments.wikitext.vocabulary import Vocabulary


@pytest.fixture
def text(capsys):
    """Run the command line; returns what it prints."""

    def run(**arguments):
        assert generate.main([f"{key}={value}" for key, value in arguments.items()]) == 0
        return capsys.readouterr().out.removesuffix("\n")

    return run


@pytest.fixture
def error(capsys):
    """Run a command line that must fail; returns what it says."""

    def run(*arguments, **more):
        assert generate.main([*arguments, *(f"{key}={value}" for key, value in more.items())]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("error: ")
        return printed.err

    return run


def test_arguments_are_read():
    assert parse(
        Request, ["checkpoint=a=b", "prompt=x = y", "num_tokens=3", "temperature=0", "top_k=2", "seed=7"]
    ) == Request("a=b", "x = y", 3, 0.0, 2, 7)
    assert parse(Request, ["prompt=x", "checkpoint=a"]) == Request("a", "x")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("num_token=5", "num_token is unknown; did you mean num_tokens"),
        ("temprature=5", "temprature is unknown; did you mean temperature"),
        ("--seed=5", "--seed is unknown; did you mean seed"),
        ("best.ckpt", "'best.ckpt' is no key=value argument"),
        ("prompt=again", "prompt is given twice"),
        ("num_tokens=many", "num_tokens=many: input should be a valid integer"),
        ("num_tokens=2.5", r"num_tokens=2\.5: input should be a valid integer"),
        ("num_tokens=0", "num_tokens=0: input should be greater than or equal to 1"),
        ("temperature=-1", "temperature=-1: input should be greater than or equal to 0"),
        ("temperature=nan", "temperature=nan: input should be a finite number"),
        ("temperature=hot", "temperature=hot: input should be a valid number"),
        ("top_k=0", "top_k=0: input should be greater than or equal to 1"),
        ("top_k=few", "top_k=few: input should be a valid integer"),
        ("seed=-1", "seed=-1: input should be greater"),
    ],
)
def test_a_mistaken_argument_is_refused(argument, message):
    with pytest.raises(ConfigError, match=message):
        parse(Request, ["checkpoint=nowhere", "prompt=the", argument])


def test_the_needed_arguments_are_named():
    with pytest.raises(ConfigError, match=r"prompt=\.\.\. is missing"):
        parse(Request, ["checkpoint=nowhere"])
    with pytest.raises(ConfigError, match=r"checkpoint=\.\.\. is missing"):
        parse(Request, ["prompt=the"])


def test_arguments_are_checked_before_any_work(error):
    assert "top_k=0" in error(checkpoint="nowhere", prompt="the", top_k=0)
    assert "nowhere: no such run folder" in error(checkpoint="nowhere", prompt="the")


def test_help_names_every_argument(capsys):
    assert generate.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{key} " in printed for key in Request._fields)


def test_words_and_the_unknown_ones(words_run, capsys):
    arguments = [f"checkpoint={words_run}", "prompt=the history of Tensormemia and  Tensormemia", "num_tokens=8"]
    assert generate.main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("the history of <unk> and <unk> ")
    assert len(printed.out.split()) == 6 + 8
    assert printed.err == "not in the vocabulary, read as <unk>: Tensormemia\n"
    assert generate.main([f"checkpoint={words_run}", "prompt=the history of", "num_tokens=1"]) == 0
    assert capsys.readouterr().err == ""


def test_the_likeliest_symbols_are_those_of_the_model(symbols_run, text):
    model = load_model(symbols_run)
    expected = model.generate(torch.tensor([[3, 11, 0]]), 9, temperature=0.0)[0].tolist()
    arguments = {"checkpoint": symbols_run, "prompt": "3 11 0", "num_tokens": 9}
    assert text(**arguments, temperature=0) == " ".join(map(str, expected))
    assert text(**arguments, top_k=1) == " ".join(map(str, expected))


def test_a_seed_is_a_text(symbols_run, text):
    arguments = {"checkpoint": symbols_run / "last.ckpt", "prompt": "3 11 0", "num_tokens": 20}
    first, again, other = (text(**arguments, seed=seed) for seed in (4, 4, 5))
    assert first == again
    assert first != other
    assert first != text(**arguments, seed=4, temperature=0.1)


def test_characters(characters_run, text, error):
    printed = text(checkpoint=characters_run, prompt="ROMEO:\nO ", num_tokens=40, top_k=5)
    assert printed.startswith("ROMEO:\nO ")
    assert len(printed) == 9 + 40
    message = error(checkpoint=characters_run, prompt="Zoë")
    assert (
        "'ë' not in the run's vocabulary 'characters', which has no id for unknown words: it has '\\n' ' '" in message
    )


def test_rotary_positions_have_no_end(characters_run, text):
    assert len(text(checkpoint=characters_run, prompt="O", num_tokens=80)) == 81


def test_learned_positions_say_how_many_tokens_fit(symbols_run, text, error, monkeypatch):
    # Windows of 32: three symbols are given, the last is not fed back.
    arguments = {"checkpoint": symbols_run, "prompt": "3 11 0"}
    assert len(text(**arguments, num_tokens=30).split()) == 33
    monkeypatch.setattr("tensormem.models.language_model.LanguageModel.hidden", lambda *_: pytest.fail("it started"))
    message = error(**arguments, num_tokens=31)
    assert "num_tokens=31 after 3 given tokens is too long: positions=learned ends at 32 tokens, so 30 fit" in message


def test_a_model_without_a_state_says_what_to_train(tmp_path, symbols_run, error):
    content = torch.load(symbols_run / "best.ckpt", weights_only=True)
    content[BUILT_FROM]["network"]["threading"] = "depth"
    torch.save(content, tmp_path / "best.ckpt")
    message = error(checkpoint=tmp_path, prompt="3")
    assert "this model can't generate" in message
    assert "use threading=layer" in message


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "prompt='' has nothing to continue"),
        ("  ", "prompt='  ' has nothing to continue"),
        ("3 24 x", "'24', 'x' not in the run's vocabulary 'symbols'"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(symbols_run, error, prompt, message):
    assert message in error(checkpoint=symbols_run, prompt=prompt)


def test_data_of_another_size_is_refused(tmp_path, symbols_run, error):
    content = torch.load(symbols_run / "best.ckpt", weights_only=True)
    content[BUILT_FROM]["data"]["markov"]["num_symbols"] = 12
    torch.save(content, tmp_path / "best.ckpt")
    assert "the model knows 24 words, corpus=synthetic has 12" in error(checkpoint=tmp_path, prompt="3")


def test_a_vocabulary_that_ends_lines_does_not_end_the_prompt():
    vocabulary = Vocabulary("standard", ("a", "<eos>"), True, None, {"a": 0, "<eos>": 1})
    assert generate.encode_prompt("a a", vocabulary)[0].tolist() == [0, 0]


def test_an_older_run_takes_the_config_beside_its_checkpoint(symbols_run, tmp_path, text):
    content = torch.load(symbols_run / "best.ckpt", weights_only=True)
    del content[BUILT_FROM]
    torch.save(content, tmp_path / "best.ckpt")
    shutil.copy(symbols_run / "config.yaml", tmp_path)
    arguments = {"prompt": "3 11 0", "num_tokens": 9}
    assert text(checkpoint=tmp_path, **arguments) == text(checkpoint=symbols_run, **arguments)
