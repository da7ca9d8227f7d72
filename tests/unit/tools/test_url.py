"""A model fills parts of a URL; it never chooses where the request goes."""

from __future__ import annotations

import pytest

from agentrun.tools import ArgumentsError, ToolSetupError, parse_arguments
from agentrun.tools.url import UrlTemplate


@pytest.mark.parametrize(
    ("template", "arguments", "url"),
    [
        ("https://h/a", "{}", "https://h/a"),
        ("https://h", "{}", "https://h/"),
        ("https://h/a?fixed=1", '{"x": "a b&c"}', "https://h/a?fixed=1&x=a%20b%26c"),
        ("https://h/users/{id}", '{"id": 9007199254740993}', "https://h/users/9007199254740993"),
        ("https://h/users/{id}", '{"id": "a/b?c#d%2e"}', "https://h/users/a%2Fb%3Fc%23d%252e"),
        ("https://h/{a}/{b}", '{"a": true, "b": "é"}', "https://h/true/%C3%A9"),
        ("https://h/s?q={q}", '{"q": "x&y=1", "n": 19.90}', "https://h/s?q=x%26y%3D1&n=19.90"),
        ("https://h/a", '{"list": [1, 2.50], "no": null, "t": true}', "https://h/a?list=1&list=2.50&t=true"),
        ("https://h/a", '{"deep": {"x": 1.0}}', "https://h/a?deep=%7B%22x%22%3A1.0%7D"),
        ("http://u:p@h:81/a", '{"e": 1e400}', "http://u:p@h:81/a?e=1e400"),
    ],
)
def test_a_url_is_filled_from_the_arguments(template: str, arguments: str, url: str) -> None:
    values = parse_arguments(arguments, literal_numbers=True)
    assert UrlTemplate.parse(template).fill(values, rest_in_query=True) == url


def test_what_goes_in_a_body_is_not_in_the_query() -> None:
    assert UrlTemplate.parse("https://h/{a}").fill({"a": "x", "b": "y"}, rest_in_query=False) == "https://h/x"


@pytest.mark.parametrize(
    ("template", "arguments", "says"),
    [
        ("https://h/users/{id}/posts", "{}", "id: required"),
        ("https://h/users/{id}/posts", '{"id": null}', "id: required"),
        ("https://h/users/{id}/posts", '{"id": ""}', "id: must not be empty"),
        ("https://h/users/{id}/posts", '{"id": ".."}', 'must not be "." or ".."'),
        ("https://h/users/{a}{b}/posts", '{"a": ".", "b": "."}', 'must not be "." or ".."'),
        ("https://h/users/{id}", '{"id": ["x"]}', "id: must be a string"),
    ],
)
def test_an_argument_that_would_lead_elsewhere_is_refused(template: str, arguments: str, says: str) -> None:
    values = parse_arguments(arguments, literal_numbers=True)
    with pytest.raises(ArgumentsError) as error:
        UrlTemplate.parse(template).fill(values, rest_in_query=False)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "template",
    [
        "ftp://h/a",
        "h/a",
        "https:///a",
        "https://{h}/a",
        "https://h:port/a",
        "https://h/{}",
        "https://h/{a",
        "http://[",
    ],
)
def test_a_url_that_cannot_be_called_is_refused_at_set_up(template: str) -> None:
    with pytest.raises(ToolSetupError):
        UrlTemplate.parse(template)


def test_what_is_shown_of_a_url_holds_no_secrets() -> None:
    assert UrlTemplate.parse("https://user:pw@h:81/{id}?token=x").shown == "https://h:81/{id}"
