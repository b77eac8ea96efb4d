"""Base URLs as people write them."""

from __future__ import annotations

import pytest

from nbagent.errors import ConfigError
from nbagent.provider.address import parse_address, unreachable


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        (" https://api.openai.com/v1/ ", "https://api.openai.com/v1"),
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("http://localhost:11434", "http://localhost:11434/v1"),
        ("localhost:11434", "http://localhost:11434/v1"),
        ("127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
        ("192.168.1.5:8000", "http://192.168.1.5:8000/v1"),
        ("ollama:11434/v1", "http://ollama:11434/v1"),
        ("openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("https://host/v1/chat/completions", "https://host/v1"),
        ("https://host/v1/chat/completions/", "https://host/v1"),
        ("https://host/v1/responses", "https://host/v1"),
        ("https://host/v1/models", "https://host/v1"),
        ("'https://host/v1'", "https://host/v1"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("https://x.openai.azure.com/openai/v1/", "https://x.openai.azure.com/openai/v1"),
    ],
)
def test_written_and_meant(written: str, url: str) -> None:
    assert parse_address(written).url == url


@pytest.mark.parametrize(
    "written", ["ftp://host/v1", "http://", "http:///v1", "https://a b/v1", "http://host:notaport", "file:///etc"]
)
def test_what_is_no_address(written: str) -> None:
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
        parse_address(written)


def test_what_an_address_knows() -> None:
    azure = parse_address("https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21")
    assert azure.is_azure
    assert azure.is_openai
    assert azure.query == (("api-version", "2024-10-21"),)
    assert parse_address("http://user:pw@localhost:1/v1").host == "localhost:1"
    assert parse_address("http://127.0.0.5:1/v1").local
    assert not parse_address("https://example.org/v1").local
    assert parse_address("").is_openai
    assert not parse_address("https://api.openai.com.evil.example/v1").is_openai
    assert parse_address("http://h:1/a/b").root == "http://h:1"


def test_where_else_the_paths_may_be() -> None:
    assert [a.url for a in parse_address("https://host").others()] == ["https://host"]
    assert [a.url for a in parse_address("https://host/api").others()] == ["https://host/api/v1"]
    assert parse_address("https://host/v1").others() == ()
    assert parse_address("https://host/v1beta/openai").others() == ()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("http://127.0.0.1:11434/v1", "is Ollama running"),
        ("http://localhost:1234/v1", "is LM Studio running"),
        ("localhost:8080", "llama-server"),
        ("localhost:8000", "vllm serve"),
        ("localhost:5555", "Start your model server"),
        ("https://models.example/v1", "Check the network"),
    ],
)
def test_nobody_answers(written: str, words: str) -> None:
    text = unreachable(parse_address(written), "refused")
    assert text.startswith("No server answers at ")
    assert words in text
