"""Where each argument of a call goes, byte for byte."""

from __future__ import annotations

import email
import email.policy
import json
from typing import Any

import pytest

from agentrun.tools.arguments import parse_arguments
from agentrun.tools.errors import ArgumentsError
from agentrun.tools.openapi.request import Request, request


def place(
    name: str, where: str = "query", style: str = "", explode: bool | None = None, **more: Any
) -> dict[str, Any]:
    style = style or ("form" if where in ("query", "cookie") else "simple")
    explode = style == "form" if explode is None else explode
    told = {"name": name, "in": where, "style": style, "explode": explode, "argument": name}
    return {**told, "required": where == "path", **more}


def asked(
    text: str, *places: dict[str, Any], path: str = "/a", body: dict[str, Any] | None = None
) -> Request:
    plan = {"method": "POST", "path": path, "parameters": list(places), "body": body}
    return request(plan, parse_arguments(text, literal_numbers=True))


@pytest.mark.parametrize(
    ("where", "text", "target"),
    [
        (place("q"), '{"q": "a b&c=d/é"}', "/a?q=a%20b%26c%3Dd%2F%C3%A9"),
        (place("q"), '{"q": 19.90}', "/a?q=19.90"),
        (place("q"), '{"q": true}', "/a?q=true"),
        (place("q"), '{"q": null}', "/a"),
        (place("q"), '{"q": [1, null, "b"]}', "/a?q=1&q=b"),
        (place("q", explode=False), '{"q": [1, "b"]}', "/a?q=1%2Cb"),
        (place("q", style="spaceDelimited"), '{"q": [1, 2]}', "/a?q=1%202"),
        (place("q", style="pipeDelimited"), '{"q": [1, 2]}', "/a?q=1%7C2"),
        (
            place("q", style="deepObject", explode=True),
            '{"q": {"x": 1, "y": null, "z": "b"}}',
            "/a?q%5Bx%5D=1&q%5Bz%5D=b",
        ),
        (place("q"), '{"q": {"x": 1, "y": "b"}}', "/a?x=1&y=b"),
        (place("q", explode=False), '{"q": {"x": 1, "y": "b"}}', "/a?q=x%2C1%2Cy%2Cb"),
        (place("q", style="json"), '{"q": {"x": 1.50}}', "/a?q=%7B%22x%22%3A1.50%7D"),
        (place("q"), "{}", "/a"),
    ],
)  # fmt: skip
def test_the_query(where: dict[str, Any], text: str, target: str) -> None:
    assert asked(text, where).path == target


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"id": "a/b?c#d"}', "/x/a%2Fb%3Fc%23d/y"),
        ('{"id": 9007199254740993}', "/x/9007199254740993/y"),
        ('{"id": [1, 2]}', "/x/1%2C2/y"),
        ('{"id": "..a"}', "/x/..a/y"),
    ],
)
def test_the_path(text: str, path: str) -> None:
    assert asked(text, place("id", "path"), path="/x/{id}/y").path == path


@pytest.mark.parametrize("value", ['""', '"."', '".."', "[]"])
def test_a_segment_is_never_empty_nor_leads_elsewhere(value: str) -> None:
    with pytest.raises(ArgumentsError, match="id: must not be empty"):
        asked(f'{{"id": {value}}}', place("id", "path"), path="/x/{id}")


def test_headers_and_cookies() -> None:
    found = asked(
        '{"X-A": [1, 2], "c": "a;b", "d": 5}',
        place("X-A", "header"),
        place("c", "cookie"),
        place("d", "cookie"),
    )
    assert found.headers == {"x-a": "1,2", "cookie": "c=a%3Bb; d=5"}


@pytest.mark.parametrize("value", ["a\\r\\nX-Evil: 1", "é", "\\u0007"])
def test_what_a_header_cannot_hold_is_refused(value: str) -> None:
    with pytest.raises(ArgumentsError, match="X-A: must be one line of ASCII"):
        asked(f'{{"X-A": "{value}"}}', place("X-A", "header"))


def body(
    kind: str, media_type: str, *, required: bool = False, files: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {"argument": "body", "kind": kind, "type": media_type, "required": required, "files": list(files)}


@pytest.mark.parametrize(
    ("form", "text", "data", "media_type"),
    [
        (body("json", "application/json"), '{"body": {"n": 19.90, "big": 12345678901234567890}}',
         b'{"n":19.90,"big":12345678901234567890}', "application/json"),
        (body("json", "*/*"), '{"body": null}', b"null", "application/json"),
        (body("json", "application/vnd.x+json"), '{"body": [1]}', b"[1]", "application/vnd.x+json"),
        (body("form", "application/x-www-form-urlencoded"), '{"body": {"a": [1, 2], "b": "x y", "c": null}}',
         b"a=1&a=2&b=x+y", "application/x-www-form-urlencoded"),
        (body("text", "text/plain"), '{"body": "as it is"}', b"as it is", "text/plain"),
    ],
)  # fmt: skip
def test_the_body(form: dict[str, Any], text: str, data: bytes, media_type: str) -> None:
    found = asked(text, body=form)
    assert (found.body, found.headers["content-type"]) == (data, media_type)


def test_no_body_is_sent_where_none_is_given() -> None:
    found = asked("{}", body=body("json", "application/json"))
    assert (found.body, dict(found.headers)) == (None, {})


def test_a_form_with_files() -> None:
    form = body("multipart", "multipart/form-data", files=("file",))
    text = json.dumps({"body": {"file": "line\n--x\r\n", 'na"me\n': "v", "n": [1, 2]}})
    first, second = asked(text, body=form), asked(text, body=form)
    assert first == second, "a call that is made again is the same"
    head = f"Content-Type: {first.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + (first.body or b""), policy=email.policy.HTTP)
    parts = [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    ]
    assert parts == [
        ("file", "file", b"line\n--x\r\n"),
        ("na%22me%0A", None, b"v"),
        ("n", None, b"1"),
        ("n", None, b"2"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "- id: required, and not given\n- body: required, and not given\nArguments are: id, body"),
        ('{"id": 1, "body": 1, "x": 1}', "- x: there is no such argument"),
        ('{"id": null, "body": {}}', "- id: required, and not given"),
        ('{"id": 1, "body": "no object"}', "body: must be an object, for it is sent as a form"),
    ],
)
def test_arguments_that_do_not_fit_say_what_would(text: str, said: str) -> None:
    form = body("form", "application/x-www-form-urlencoded", required=True)
    with pytest.raises(ArgumentsError) as caught:
        asked(text, place("id", "path"), path="/{id}", body=form)
    assert said in str(caught.value)
