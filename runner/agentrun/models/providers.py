"""Real providers, through pydantic-ai's models and the providers' own SDKs.

Built by `build_model`, which imports this module only then: the libraries cost
most of a second. The library builds and addresses the request; sending it and
reading the answer are ours (`transport`, `answer`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from agentrun.models import transport
from agentrun.models.answer import read_answer, spent
from agentrun.models.base import ModelError, ModelRequest, ModelResponse, ModelSetupError
from agentrun.models.convert import Marks, library_messages, library_parameters
from agentrun.models.errors import clip
from agentrun.models.options import CACHE, STREAM, fields_of
from agentrun.models.settings import ANTHROPIC_MAX_TOKENS, library_settings, merged
from agentrun.models.streams.reader import Reader
from agentrun.models.wire import Dialect, anthropic, chat, google, responses

if TYPE_CHECKING:
    from pydantic_ai.models import Model as LibraryModel
    from pydantic_ai.settings import ModelSettings

ANTHROPIC_TIMEOUT_SECONDS = 86400.0
NO_KEY = "no-key"
"""Sent to a server of one's own that asks for none: SDKs insist on one."""
_SECRET_MIN_CHARS = 6

_DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": cast(Dialect, chat),
        "openai-responses": cast(Dialect, responses),
        "anthropic": cast(Dialect, anthropic),
        "google": cast(Dialect, google),
    }
)
_KEY_VARIABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "openai": ("OPENAI_API_KEY",),
        "openai-responses": ("OPENAI_API_KEY",),
        "anthropic": ("ANTHROPIC_API_KEY",),
        "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    }
)


class ProviderModel:
    """One model of a real provider; see `Model` for what it promises."""

    def __init__(
        self, name: str, *, base_url: str | None, api_key: str | None, settings: Mapping[str, Any]
    ) -> None:
        self._name = name
        self._provider, _, model = name.partition(":")
        self._settings = dict(settings)
        self._dialect = _DIALECTS[self._provider]
        self._key = _key(name, self._provider, base_url, api_key)
        self._http = transport.GuardedClient()
        self._library = _BUILDERS[self._provider](model, base_url, self._key, self._http)
        self._own_host = base_url is None or _is_own(base_url)
        self._native_schemas = bool(self._library.profile.get("supports_json_schema_output"))

    @property
    def name(self) -> str:
        return self._name

    async def request(self, request: ModelRequest) -> ModelResponse:
        try:
            exchange = await self._exchange(request)
            if exchange.failure is not None:
                raise self._charged(exchange, request)
            if exchange.answer is None:
                raise ModelError(
                    "InvalidResponse", f"{self._name}: the library sent nothing", retryable=False
                )
            return read_answer(
                exchange.answer,
                exchange.headers,
                provider=self._provider,
                dialect=self._dialect,
                request=request,
            )
        except ModelError as e:
            raise self._without_key(e) from None

    async def close(self) -> None:
        await self._http.aclose()

    async def _exchange(self, request: ModelRequest) -> transport.Exchange:
        """Has the library build and send the request; its answer or failure is in what comes back."""
        marks = Marks()
        settings = merged(self._settings, request)
        messages = library_messages(
            request.messages,
            provider=self._provider,
            place=request.place,
            dialect=self._dialect,
            marks=marks,
        )
        options = fields_of(
            self._provider,
            request,
            stream=settings.get("stream", True) is not False,
            own_host=self._own_host,
            native_schemas=self._native_schemas,
        )
        exchange = transport.Exchange(
            provider=self._provider,
            before_send=request.before_send,
            rewrite=marks.fill,
            options=options,
            reader=Reader(self._provider, request.on_delta) if STREAM in options else None,
            extra=settings.get("extra") or {},
        )
        wanted = library_settings(settings, request)
        if self._provider == "anthropic":
            wanted.setdefault("max_tokens", ANTHROPIC_MAX_TOKENS)
        if CACHE in options:
            wanted["anthropic_cache_instructions"] = True
        token = transport.current.set(exchange)
        try:
            async with asyncio.timeout(request.timeout_seconds):
                await self._library.request(
                    messages, cast("ModelSettings", wanted), library_parameters(request)
                )
        except transport.Answered:
            pass
        except TimeoutError:
            exchange.failure = ModelError(
                "Timeout",
                f"{self._name}: no whole answer within {request.timeout_seconds:g} s",
                retryable=True,
            )
        except Exception as e:  # the library refuses to build it: no bytes have left
            exchange.failure = exchange.failure or ModelError(
                "BadRequest", clip(f"{self._name}: {type(e).__name__}: {e}"), retryable=False
            )
        finally:
            transport.current.reset(token)
        return exchange

    def _charged(self, exchange: transport.Exchange, request: ModelRequest) -> Exception:
        """The exchange's failure, with what an answer had cost that broke off."""
        failure, reader = exchange.failure, exchange.reader
        assert failure is not None
        if isinstance(failure, ModelError) and reader is not None and reader.assembler.begun:
            body = reader.assembler.body()
            failure.usage = spent(body, self._dialect, request, reader.said_bytes)
        return failure

    def _without_key(self, error: ModelError) -> ModelError:
        """Some servers repeat the key that they refuse."""
        if len(self._key) < _SECRET_MIN_CHARS or self._key == NO_KEY:
            return error
        hidden = error.message.replace(self._key, "***")
        if hidden == error.message:
            return error
        return ModelError(
            error.reason,
            hidden,
            retryable=error.retryable,
            retry_after_seconds=error.retry_after_seconds,
            usage=error.usage,
            refused_option=error.refused_option,
        )


def _key(name: str, provider: str, base_url: str | None, api_key: str | None) -> str:
    """The key to send. One of the environment goes to the provider's own address only."""
    if api_key:
        return api_key
    if base_url:
        return NO_KEY
    for variable in _KEY_VARIABLES[provider]:
        if os.environ.get(variable):
            return os.environ[variable]
    wanted = " or ".join(_KEY_VARIABLES[provider])
    raise ModelSetupError(f"model {name!r} has no API key: give apiKeyFrom, or set {wanted}")


def _openai_client(base_url: str | None, key: str, http: transport.GuardedClient) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=base_url, api_key=key, http_client=http, max_retries=0)


def _openai(model: str, base_url: str | None, key: str, http: transport.GuardedClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    client = _openai_client(base_url, key, http)
    # Servers that imitate OpenAI know the older name of the output limit.
    newer = _is_openai(str(client.base_url))
    profile = None if newer else OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client), profile=profile)


def _openai_responses(
    model: str, base_url: str | None, key: str, http: transport.GuardedClient
) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = _openai_client(base_url, key, http)
    return OpenAIResponsesModel(model, provider=OpenAIProvider(openai_client=client))


def _anthropic(model: str, base_url: str | None, key: str, http: transport.GuardedClient) -> LibraryModel:
    import httpx2
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    # A timeout of one's own keeps the SDK from refusing large answers; it is `transport` that bounds time.
    timeout = httpx2.Timeout(ANTHROPIC_TIMEOUT_SECONDS)
    client = AsyncAnthropic(base_url=base_url, api_key=key, http_client=http, max_retries=0, timeout=timeout)
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


def _google(model: str, base_url: str | None, key: str, http: transport.GuardedClient) -> LibraryModel:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    # Without retry options this SDK makes one try.
    provider = GoogleProvider(api_key=key, base_url=base_url, http_client=http)
    return GoogleModel(model, provider=provider)


def _is_openai(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host.endswith((".openai.com", ".azure.com"))


def _is_own(base_url: str) -> bool:
    """The provider itself is behind the address."""
    host = urlsplit(base_url).hostname or ""
    return _is_openai(base_url) or host.endswith((".anthropic.com", ".googleapis.com"))


_BUILDERS: Mapping[str, Callable[[str, str | None, str, transport.GuardedClient], LibraryModel]] = (
    MappingProxyType(
        {
            "openai": _openai,
            "openai-responses": _openai_responses,
            "anthropic": _anthropic,
            "google": _google,
        }
    )
)
