"""Which names hold secrets: of variables, options, keys and headers."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that make a name secret, as whole parts of it: `hf_token` and `apiKey` are, `tokenizer` and `key_dim` are not.
_SECRET_WORDS = _words(
    "token secret secrets password passwords passwd passphrase passcode pwd apikey apikeys credential credentials "
    "bearer authorization cookie signature dsn sshpass"
)
# … and as the end of one that is written in one piece: PGPASSWORD.
_SECRET_ENDINGS = ("password", "passwd", "passphrase", "apikey")
# Those that are also ordinary words of a training script: a sentence has tokens, a function a signature.
_AMBIGUOUS_WORDS = _words("token signature")
# Words that make a name secret only if the value looks random.
_DOUBTFUL_WORDS = _words("key keys pass auth sig cred creds pat login tokens")
_SECRET_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("account", "key"), ("auth", "key")}
    | {("signing", "key"), ("encryption", "key"), ("license", "key"), ("ssh", "key"), ("storage", "key")}
    | {("connection", "string"), ("pass", "word"), ("session", "id"), ("client", "key"), ("service", "key")}
    | {("api", "keys"), ("access", "keys"), ("private", "keys"), ("auth", "tokens"), ("access", "tokens")}
)
# … unless the name goes on to say that it counts or describes tokens, keys and the like.
_HARMLESS_AFTER = _words(
    "id ids index type types count counts limit limits length len max min size dim dims num file path dir name names "
    "level mode loss dropout mixer mixing per embedding embeddings embed budget prob ratio weight weights format "
    "method classification version url uri host port user username s drop keep merge mask shape pos position "
    "positions counter label labels pooling pool emb grid accuracy acc labeling map columns"
)
_HARMLESS_BEFORE = _words("num max min n pad eos bos mask unk sep cls special image per vocab total class dist")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def is_secret_name(name: str) -> bool:
    """Does a variable, option or key of this name hold a secret?"""
    return _secret_word(name) is not None


def is_surely_secret_name(name: str) -> bool:
    """The same, of a name that is never used for anything else."""
    word = _secret_word(name)
    return word is not None and word not in _AMBIGUOUS_WORDS


def is_doubtful_name(name: str) -> bool:
    """Might it, so that the value has to tell?"""
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _DOUBTFUL_WORDS


def _secret_word(name: str) -> str | None:
    words: list[str] = [word.lower() for word in _WORD.findall(name)]
    for i, word in enumerate(words):
        pair = (word, words[i + 1]) if i + 1 < len(words) else None
        end = i + 1
        if pair in _SECRET_PAIRS:
            end = i + 2
        elif word not in _SECRET_WORDS and not word.endswith(_SECRET_ENDINGS):
            continue
        if not (end < len(words) and words[end] in _HARMLESS_AFTER) and not (i and words[i - 1] in _HARMLESS_BEFORE):
            return word
    return None
