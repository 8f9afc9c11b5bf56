"""Tokens and certificates as gRPC wants them."""

from __future__ import annotations

import hmac
from typing import Any, Callable, Sequence

import grpc

from visualquant_agent.auth import Security, token_in


def credentials(security: Security) -> grpc.ServerCredentials:
    """Of a server with TLS."""
    return grpc.ssl_server_credentials(
        [(security.key or b"", security.certificate or b"")],
        security.client_ca,
        require_client_auth=security.client_ca is not None,
    )


class TokenCheck(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses every call without a known token, health and reflection included."""

    def __init__(self, tokens: Sequence[str]) -> None:
        """Compares with each, in constant time."""
        self._tokens = [t.encode() for t in tokens]

        def refuse(_request: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

        self._refuse = grpc.unary_unary_rpc_method_handler(refuse)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """The real handler, or one that refuses."""
        given = token_in(handler_call_details.invocation_metadata).encode("utf-8", "replace")
        known = [hmac.compare_digest(given, t) for t in self._tokens]
        return continuation(handler_call_details) if any(known) else self._refuse
