"""The tools, prompts and resources that the suite asks for, with the names of this project."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tidewire as tw

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SILENCE = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"


@dataclass
class address:
    """Where somebody lives."""

    street: str = ""
    city: str = ""


class Test(tw.Service, visibility="public"):
    """Answers the scenarios of the suite."""

    @tw.method
    def simple_text(self) -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @tw.method
    def image_content(self) -> bytes:
        """Return a picture."""
        return PIXEL

    @tw.method
    def audio_content(self) -> bytes:
        """Return a sound."""
        return SILENCE

    @tw.method
    def error_handling(self) -> None:
        """Fail."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @tw.method
    def tool_with_progress(self) -> Iterator[str]:
        """Report three steps."""
        yield from ("0/100", "50/100", "100/100")

    @tw.method
    def embedded_resource(self) -> dict[str, Any]:
        """Return a resource."""
        return _resource("test://embedded-resource", "This is an embedded resource content.")

    @tw.method
    def multiple_content_types(self) -> list[Any]:
        """Return a text, a picture and a resource."""
        return ["Multiple content types test:", PIXEL, _resource("test://mixed-content-resource", "data")]

    @tw.method(prompt=True)
    def simple_prompt(self) -> str:
        """Return a message."""
        return "This is a simple prompt for testing."

    @tw.method(prompt=True)
    def prompt_with_arguments(self, arg1: str, arg2: str) -> str:
        """Return a message with the arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @tw.method(prompt=True, name="prompt_with_embedded_resource")
    def prompt_with_resource(self, resourceUri: str) -> list[Any]:
        """Return a resource, and a message."""
        resource = _resource(resourceUri, "Embedded resource content for testing.")
        return [{"role": "user", "content": resource}, "Please process the embedded resource above."]

    @tw.method(prompt=True)
    def prompt_with_image(self) -> list[Any]:
        """Return a picture, and a message."""
        return [PIXEL, "Please analyze the image above."]


class JsonSchema(tw.Service, visibility="public"):
    """Has a parameter with a schema of its own."""

    @tw.method(name="2020_12_tool")
    def tool(self, name: str = "", address: address | None = None) -> str:
        """Return the name."""
        return name


def _resource(uri: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": text}}


async def serve(node: tw.Node) -> None:
    """Serve the tools, and write the resources."""
    await node.serve(Test(), name="test")
    await node.serve(JsonSchema(), name="json_schema")
    static, template = await node.kv("static"), await node.kv("template")
    await static.put("text", "This is the content of the static text resource.")
    await static.put("binary", PIXEL)
    await template.put("123", {"id": "123"})
    await node.stream("watched", subjects=["watched.>"])
