from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.store.redaction import (
    REDACTED,
    is_secret_name,
    redact,
    redact_argv,
    redact_environment,
    redact_text,
)

LETTERS = string.ascii_letters + string.digits
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

secret_values = st.text(LETTERS + "-_", min_size=8, max_size=60).filter(lambda s: s[0] not in "-[" and len(set(s)) > 3)
NAMES = (
    "token api-key api_key apiKey hf_token HF_TOKEN WANDB_API_KEY password db.password secret AWS_SECRET_ACCESS_KEY "
    "client_secret auth-token GITHUB_TOKEN accessToken X-Amz-Signature private_key ACCOUNT_KEY"
)
secret_names = st.sampled_from(NAMES.split())


@given(secret_names, secret_values)
def test_a_value_under_a_secret_name_is_gone_however_it_is_passed(name: str, value: str) -> None:
    argv = ("train.py", f"--{name}", value, f"--{name}={value}", f"{name}={value}", "--lr", "0.1")

    assert value not in " ".join(redact_argv(argv))
    assert redact_argv(argv)[-2:] == ("--lr", "0.1")
    assert value not in redact_environment({name: value}).values()
    assert value not in redact_text(f"see https://host/path?a=1&{name}={value}&b=2 for more")
    assert value not in redact_text(f'{{"{name}": "{value}", "x": 1}}')
    assert value not in str(redact({"deep": [{name: value}]}))


@given(
    st.sampled_from(["hf_{}", "sk-{}", "sk-proj-{}", "ghp_{}", "gho_{}", "github_pat_{}", "glpat-{}", "npm_{}"]),
    st.text(LETTERS, min_size=20, max_size=40),
)
def test_a_token_known_by_its_shape_is_gone_wherever_it_stands(shape: str, random: str) -> None:
    token = shape.format(random)

    for text in (token, f"--key {token}", f"/data/{token}/x", f"https://{token}@host/x", f"a={token};b"):
        assert random not in redact_text(text), text
        assert random not in " ".join(redact_argv(text.split()))


@given(st.text(LETTERS, min_size=4, max_size=30), st.text(LETTERS + "!$%^*+", min_size=6, max_size=30))
def test_a_password_in_a_url_is_gone(user: str, password: str) -> None:
    stored = redact_text(f"postgresql://{user}:{password}@db.example.org:5432/runs")

    assert f":{password}@" not in stored
    assert stored.endswith("@db.example.org:5432/runs")


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {JWT}",
        f"--header=Authorization: token {JWT}",
        JWT,
        "AKIAIOSFODNN7EXAMPLE",
        "https://s3.amazonaws.com/b/k?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE&X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027",
        "https://x.blob.core.windows.net/c?sv=2020&sig=a8Xk2fQ0w9LmZ3Vt7Rb1Yc5Hd4Ne6Uj",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
        "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
        "https://oauth2:glpat-aaaaBBBBccccDDDD1234@gitlab.example.org/x.git",
        "--key=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    ],
)
def test_known_secrets_leave_a_mark_and_nothing_else(text: str) -> None:
    stored = redact_text(text)

    assert REDACTED in stored
    for secret in (JWT[-20:], "AKIAIOSF", "fe5f80f7", "a8Xk2f", "MIIEpA", "89abcdef", "BBBBcccc", "9f86d081"):
        assert secret not in stored


@pytest.mark.parametrize(
    "word",
    [
        "train.py",
        "--lr=3e-4",
        "--tokenizer=bert-base-uncased",
        "--max-tokens=2048",
        "--num_tokens",
        "--pad-token-id=0",
        "--special_token=<s>",
        "--key-dim=64",
        "--monkey=banana",
        "model.n_head=12",
        "/data/imagenet/train/n01440764/ILSVRC2012_val_00000293.JPEG",
        "checkpoint-3f2a9c1.pt",
        "runs/da39a3ee5e6b4b0d3255bfef95601890afd80709/model.bin",
        "s3://bucket/prefix/data.tar",
        "git@github.com:user/repo.git",
        "ssh://git@host/repo.git",
        "https://huggingface.co/datasets/x?split=train&page=2",
        "--secret-loss-weight=0.5",
        "--author=someone",
        "--signal=9",
        "sky-is-not-a-key",
        "+trainer.strategy=ddp",
        "--compass=north",
        "12:30",
        "a" * 100,
    ],
)
def test_ordinary_words_are_kept(word: str) -> None:
    assert redact_argv((word,)) == (word,)
    assert redact_text(word) == word


@given(st.floats(allow_nan=False) | st.integers() | st.booleans() | st.none())
def test_values_that_are_no_text_are_kept(value: object) -> None:
    assert redact({"steps": value, "max_tokens": [value]}) == {"steps": value, "max_tokens": [value]}


@given(st.lists(st.text(max_size=40), max_size=6))
def test_redaction_never_fails_and_is_settled_after_once(argv: list[str]) -> None:
    once = redact_argv(argv)

    assert len(once) == len(argv)
    assert redact_argv(once) == once


def test_an_option_after_a_secret_option_is_no_value() -> None:
    assert redact_argv(("--use-token", "--epochs", "3")) == ("--use-token", "--epochs", "3")
    assert redact_argv(("--token", "abc", "data")) == ("--token", REDACTED, "data")


def test_names() -> None:
    assert is_secret_name("--hf-token") and is_secret_name("apiKey") and is_secret_name("MY_PASSWORD")
    assert not is_secret_name("tokenizer") and not is_secret_name("max_token_length") and not is_secret_name("keyboard")
