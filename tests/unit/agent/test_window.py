"""When a conversation is shortened and how far, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentrun.agent.window import Plan, TurnSize, Window, plan

WINDOW = Window(tokens=1000, at=0.8, keep=0.3)


def turns(*sizes: int | tuple[int, int]) -> list[TurnSize]:
    pairs = [(size, size) if isinstance(size, int) else size for size in sizes]
    return [
        TurnSize(number=number, tokens=tokens, tokens_aside=aside)
        for number, (tokens, aside) in enumerate(pairs, 1)
    ]


@pytest.mark.parametrize(
    ("fixed", "output", "told", "found"),
    [
        (100, 0, turns(), None),
        (100, 100, turns(350, 350), None),
        (100, 200, turns(350, 350), None),
        (100, 201, turns(350, 350), Plan(to=1, summary=True)),
        (100, 100, turns(350, 351), Plan(to=1, summary=True)),
        (100, 100, turns((350, 50), 351), Plan(to=1, summary=False)),
        (100, 100, turns((300, 50), (300, 50), (300, 50)), Plan(to=2, summary=False)),
        (100, 100, turns(100, 100, 100, 100, 100, 100, 100, 100), Plan(to=5, summary=True)),
        (100, 100, turns((400, 50), (100, 90), (100, 90), (100, 90)), None),
        (100, 100, turns((401, 50), (100, 90), (100, 90), (100, 90)), Plan(to=1, summary=False)),
        # One turn alone is never shortened: the model has not seen its results yet.
        (100, 100, turns(900), None),
        (900, 100, turns(), None),
        # The newest stays, however large it is.
        (100, 100, turns(10, 2000), Plan(to=1, summary=True)),
        # Half way between the two: 550.
        (100, 100, turns((600, 200), 250), Plan(to=1, summary=False)),
        (100, 100, turns((600, 201), 250), Plan(to=1, summary=True)),
    ],
)
def test_what_is_done(fixed: int, output: int, told: Sequence[TurnSize], found: Plan | None) -> None:
    assert plan(WINDOW, fixed, output, told) == found


@pytest.mark.parametrize(("refused", "tokens"), [(0, 1000), (400, 400), (5000, 1000)])
def test_a_refusal_makes_the_window_smaller_and_never_larger(refused: int, tokens: int) -> None:
    assert WINDOW.no_larger_than(refused).tokens == tokens
