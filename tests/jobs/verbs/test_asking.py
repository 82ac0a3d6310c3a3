"""The one question that is asked: restoring into a collection that holds documents, on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.jobs.command import ROOT
from tests.jobs.place import MINUTES, Place
from tests.jobs.states import States


def on_a_terminal(place: Place, answer: str, *more: str) -> tuple[int, str]:
    """Restore with a person at the terminal who answers what is asked; the exit code and what was shown."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MONGODB_URI": place.uri, "TERM": "xterm"}
    command = [sys.executable, "-m", "bucketwise", "restore", "-q", "-p", "ticks", "--to", "back", *more]
    with subprocess.Popen(
        command, cwd=place.folder, env=environment, stdin=follower, stdout=follower, stderr=follower,
        start_new_session=True, preexec_fn=_own_the_terminal,
    ) as process:  # fmt: skip
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 4096):
                shown += piece
                if b"[y/N]" in shown and answer:
                    os.write(leader, answer.encode())
                    answer = ""
        except OSError:
            pass  # how Linux says that the other end is closed
        code = process.wait(300)
    os.close(leader)
    return code, shown.decode()


def _own_the_terminal() -> None:
    """As a shell does, so that Ctrl-C reaches the process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def archived(states: States) -> Place:
    return states.at("run -p ticks")


@pytest.mark.proof
def test_nothing_is_asked_where_nothing_is_there(archived: Place) -> None:
    code, shown = on_a_terminal(archived, "")
    assert code == 0
    assert "[y/N]" not in shown
    assert archived.database.back.count_documents({}) == MINUTES


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("answer", "code", "count"),
    [
        ("y\n", 0, MINUTES + 1),
        pytest.param("n\n", 2, 1, marks=pytest.mark.proof),
        ("\n", 2, 1),
        ("\x03", 130, 1),
    ],
)
def test_the_answer_counts(archived: Place, answer: str, code: int, count: int) -> None:
    archived.database.back.insert_one({"other": True})
    ended, shown = on_a_terminal(archived, answer)
    assert "The collection back holds documents already" in shown
    assert ended == code, shown
    assert "Traceback" not in shown
    assert archived.database.back.count_documents({}) == count


@pytest.mark.proof
def test_yes_asks_nothing(archived: Place) -> None:
    archived.database.back.insert_one({"other": True})
    code, shown = on_a_terminal(archived, "", "--yes")
    assert (code, "[y/N]" in shown) == (0, False)
    assert archived.database.back.count_documents({}) == MINUTES + 1


def test_without_a_terminal_nobody_is_asked(archived: Place) -> None:
    archived.database.back.insert_one({"other": True})
    ran = archived("restore", "-p", "ticks", "--to", "back", now=None)
    assert ran.code == 0
    assert "[y/N]" not in ran.err
    assert archived.database.back.count_documents({}) == MINUTES + 1
