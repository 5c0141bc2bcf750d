"""Keeps secrets out of everything that is stored. What is taken out is replaced by `[redacted]`.

Three ways in: by name (what follows `--api-key`, `password=` …), by shape (`hf_…`, `ghp_…`, a JWT …), and in URLs
(user:password@host, ?token=…). Ordinary words, numbers, paths and hashes are left alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that make a name secret, as whole parts of it: `hf_token` and `apiKey` are, `tokenizer` and `key_dim` are not.
_SECRET_WORDS = _words(
    "token secret password passwd passphrase passcode pwd apikey credential credentials bearer authorization "
    "cookie signature dsn"
)
# Words that make a name secret only if the value looks random.
_DOUBTFUL_WORDS = _words("key keys pass auth sig cred creds pat login")
_SECRET_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("account", "key"), ("auth", "key")}
    | {("signing", "key"), ("encryption", "key"), ("license", "key"), ("ssh", "key"), ("storage", "key")}
    | {("connection", "string"), ("pass", "word"), ("session", "id"), ("client", "key"), ("service", "key")}
)
# … unless the name goes on to say that it counts or describes tokens, keys and the like.
_HARMLESS_AFTER = _words(
    "id ids index type types count counts limit limits length len max min size dim dims num file path dir name names "
    "level mode loss dropout mixer mixing per embedding embeddings embed budget prob ratio weight weights format "
    "method classification version url uri host port user username s"
)
_HARMLESS_BEFORE = _words("num max min n pad eos bos mask unk sep cls special image per vocab total")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_%.~-]{16,}")
_RANDOM_BITS_PER_CHARACTER = 3.0
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}"
    r"|sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Z0-9])"
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{16,}"
    r"|pypi-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{16,}|dop_v1_[a-f0-9]{32,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r")"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^\s/?#\"']+)@")
_BEARER = re.compile(r"\b(?P<scheme>Bearer|Basic|Token)\s+(?P<value>[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
# name=value, name: value, "name": "value", also inside a longer text or a URL's query.
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?P<quote>[\"']?)(?P<middle>=|\s*:\s*(?!//)|%3[Dd])"
    r"(?P<value>\"[^\"]*\"|'[^']*'|\[redacted\]|[^\s&;,\"'}\])]+)"
)


def is_secret_name(name: str) -> bool:
    """Does a variable, option or key of this name hold a secret?"""
    words = [word.lower() for word in _WORD.findall(name)]
    for i, word in enumerate(words):
        pair = (word, words[i + 1]) if i + 1 < len(words) else None
        end = i + 1
        if pair in _SECRET_PAIRS:
            end = i + 2
        elif word not in _SECRET_WORDS:
            continue
        if not (end < len(words) and words[end] in _HARMLESS_AFTER) and not (i and words[i - 1] in _HARMLESS_BEFORE):
            return True
    return False


def _hides(name: str, value: str) -> bool:
    """Is `value`, found under `name`, to be taken out?"""
    if is_secret_name(name):
        return value not in ("", "None", "null", "True", "False", "true", "false", REDACTED)
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _DOUBTFUL_WORDS and _looks_random(value)


def _looks_random(value: str) -> bool:
    if not _RANDOM.fullmatch(value) or value.isalpha() or not any(c.isdigit() for c in value) or value[0] in "/.~":
        return False
    counts = [value.count(c) for c in set(value)]
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts)
    return bits >= _RANDOM_BITS_PER_CHARACTER


def redact_text(text: str) -> str:
    """The text without the secrets in it."""
    text = _PEM.sub(REDACTED, text)
    text = _USERINFO.sub(_without_password, text)
    text = _BEARER.sub(lambda match: f"{match['scheme']} {REDACTED}", text)
    text = _SHAPES.sub(REDACTED, text)
    return _ASSIGNED.sub(_without_value, text)


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without its secrets: `--token X`, `--token=X`, `token=X`, and anything shaped like one."""
    result: list[str] = []
    option = ""
    for word in argv:
        # After `--token` comes its value, unless the next word is an option itself.
        if option and not word.startswith("--") and _hides(option, word):
            result.append(REDACTED)
            option = ""
            continue
        name, equals, value = word.partition("=")
        option = word if word.startswith("-") and not equals else ""
        hidden = word.startswith("-") and equals and _hides(name, value)
        result.append(f"{name}={REDACTED}" if hidden else redact_text(word))
    return tuple(result)


def redact_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables without the values of secret ones."""
    return {name: REDACTED if _hides(name, value) else redact_text(value) for name, value in environ.items()}


def redact(value: Any) -> Any:
    """A JSON value without its secrets, at any depth."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {name: _redact_item(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, str) for item in value):
            return list(redact_argv(value))
        return [redact(item) for item in value]
    return value


def _redact_item(name: str, value: Any) -> Any:
    if isinstance(value, str) and _hides(name, value):
        return REDACTED
    return redact(value)


def _without_password(match: re.Match[str]) -> str:
    user, colon, _ = match["info"].partition(":")
    # A lone user name is no secret (git@host), a lone long one is a token (https://TOKEN@host).
    if colon:
        return f"{match['scheme']}{'' if len(user) >= 20 else user}:{REDACTED}@"
    return f"{match['scheme']}{REDACTED if len(user) >= 20 else user}@"


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if not _hides(match["name"], value.strip("\"'")):
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['quote']}{match['middle']}{quote}{REDACTED}{quote}"
