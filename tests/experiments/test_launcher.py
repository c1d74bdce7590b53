"""Runs forked from a process that has the libraries loaded: each is a process of its own, as typed by hand."""

import os
import signal
import textwrap
import threading
import time

import pytest

from experiments.launcher import Launcher


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that stands in for `experiments.train`: it does what its first argument says."""
    (tmp_path / "stand_in.py").write_text(
        textwrap.dedent(
            """
            import os, sys, time
            assert __name__ == "__main__"
            done = globals().setdefault("done", [])
            done.append(1)
            print("arguments", *sys.argv[1:], len(done), os.getpid())
            what = sys.argv[1]
            if what == "fail":
                sys.exit("error: it is mistaken")
            if what == "raise":
                raise RuntimeError("it is broken")
            if what == "within a line":
                print("cut", end="", flush=True)
            if what in ("kill", "within a line"):
                os.kill(os.getpid(), 9)
            if what == "wait":
                try:
                    time.sleep(60)
                except KeyboardInterrupt:
                    sys.exit(130)
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return "stand_in"


def test_every_run_is_a_process_of_its_own_and_the_next_one_goes_on(module, capfd):
    lines = []
    with Launcher(module, preload=[]) as launcher:
        statuses = [launcher.run([what, "x=1,2"], lines.append) for what in ("go", "fail", "raise", "kill", "go")]
    assert statuses == [0, 1, 1, -signal.SIGKILL, 0]
    words = [line.split() for line in lines]
    assert [line[:4] for line in words] == [
        ["arguments", what, "x=1,2", "1"] for what in ("go", "fail", "raise", "kill", "go")
    ]
    assert len({line[4] for line in words}) == len(words)
    errors = capfd.readouterr().err
    assert "error: it is mistaken" in errors
    assert "RuntimeError: it is broken" in errors


def test_a_run_may_end_within_a_line(module):
    lines = []
    with Launcher(module, preload=[]) as launcher:
        assert launcher.run(["within a line"], lines.append) == -signal.SIGKILL
        assert lines[-1] == "cut\n"
        assert launcher.run(["go"], lines.append) == 0


def test_an_interrupt_waits_for_the_run_to_end(module):
    """As a terminal does it: the run gets the signal too."""

    def interrupt(line):
        process = int(line.split()[-1])

        def both():
            time.sleep(0.2)
            os.kill(process, signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        threading.Thread(target=both).start()

    with Launcher(module, preload=[]) as launcher, pytest.raises(KeyboardInterrupt):
        launcher.run(["wait"], interrupt)


def test_a_launcher_that_is_gone_is_an_error(module):
    with Launcher(module, preload=[]) as launcher:
        launcher._server.kill()
        with pytest.raises(ChildProcessError, match="the launcher ended with status -9"):
            launcher.run(["go"], print)
