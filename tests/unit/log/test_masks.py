"""A known secret gets past the masks in none of the forms in which servers echo it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from agentrun.log.masks import MASK, Masks
from agentrun.proto import transcript_pb2 as pb

SECRET = 'sk-pl4nted/+ "quoted" é'


@pytest.mark.parametrize(
    "told",
    [
        SECRET,
        f"Unauthorized: the key {SECRET} is not known",
        json.dumps({"key": SECRET}),
        json.dumps({"key": SECRET}, ensure_ascii=False),
        f"http://host/?key={quote(SECRET)}&x=1",
        f"http://host/?key={quote(SECRET, safe='')}&x=1",
        f"{SECRET}{SECRET}",
        *(base64.b64encode(f"{'u' * k}:{SECRET}:tail{'v' * k}".encode()).decode() for k in range(6)),
        *(base64.urlsafe_b64encode(f"{'u' * k}{SECRET}".encode()).decode() for k in range(6)),
    ],
)
def test_no_form_of_it_is_left(told: str) -> None:
    for cleaned in (Masks([SECRET]).text(told), Masks([SECRET]).data(told.encode()).decode()):
        assert MASK in cleaned
        assert SECRET not in cleaned and SECRET[:12] not in cleaned
        for padding in ("", "=", "=="):
            try:
                decoded = base64.b64decode(cleaned.replace(MASK, "") + padding, altchars=b"-_")
            except ValueError:
                continue
            assert SECRET[3:12].encode() not in decoded


@pytest.mark.parametrize(
    ("secret", "told", "cleaned"),
    [
        ("Bearer abcdefghij", "token abcdefghij", f"token {MASK}"),
        ("Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", MASK),
        (" abcdefghij\n", "x abcdefghij", f"x {MASK}"),
        ("-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n", "line MIIEvQIBADANBgkq", f"line {MASK}"),
        ("short", "a short text", "a short text"),
        ("", "nothing", "nothing"),
    ],
)
def test_what_is_looked_for(secret: str, told: str, cleaned: str) -> None:
    assert Masks([secret]).text(told) == cleaned


def test_a_secret_within_a_secret_leaves_no_rest() -> None:
    masks = Masks(["abcdefgh"])
    masks.add(["abcdefgh-and-more"])
    assert masks.text("abcdefgh-and-more") == MASK


def test_all_texts_of_a_message_are_cleaned_and_nothing_else() -> None:
    turn = pb.AssistantTurn(response_id=SECRET, model="m", truncated=True)
    turn.parts.add().text.text = f"it is {SECRET}"
    turn.parts.add().tool_call.arguments = json.dumps({"key": SECRET})
    plain = pb.AssistantTurn(model="m", truncated=True)
    plain.parts.add().text.text = "nothing here"
    before = plain.SerializeToString()
    masks = Masks([SECRET])
    masks.message(turn)
    masks.message(plain)
    assert plain.SerializeToString() == before
    assert (turn.response_id, turn.parts[0].text.text) == (MASK, f"it is {MASK}")
    assert json.loads(turn.parts[1].tool_call.arguments) == {"key": MASK}


def test_without_secrets_nothing_changes() -> None:
    assert Masks().text("text") == "text" and Masks().data(b"\xff") == b"\xff"
