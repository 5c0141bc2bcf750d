"""Keeps secrets out of everything that is stored. What is taken out is replaced by `[redacted]`.

Three ways in: by name (what follows `--api-key`, `password = ` …), by shape (`hf_…`, `ghp_…`, a JWT …), and in URLs
(user:password@host, ?token=…). Ordinary words, numbers, paths and hashes are left alone, and so is code that works a
value out: what is secret in source is a text in quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"
_NOTHING = ("", "None", "null", "True", "False", "true", "false", "none", REDACTED)
_SHORT_NUMBER = re.compile(r"[+-]?\d{1,6}(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")
# A token of a vocabulary: <pad>, [SEP], <|audio|>, ##.
_SPECIAL = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\|[^|]*\||\W{1,4}")
# A value that is taken from elsewhere, as configs write it.
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_%.~-]{16,}")
_RANDOM_BITS_PER_CHARACTER = 3.0
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|nvapi-[A-Za-z0-9_-]{16,}"
    r"|sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{30,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Z0-9])"
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}"
    r"|pypi-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{16,}|dop_v1_[a-f0-9]{32,}|dckr_pat_[A-Za-z0-9_-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r")"
)
_HOOK = re.compile(r"(?P<head>://hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]+")
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
_USERINFO = re.compile(
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^\s/?#\"'@:]*:(?!\d{1,5}[/?#])[^\s\"']+|[^\s/?#\"']+)@"
)
_BEARER = re.compile(
    r"(?P<header>authorization\\*[\"']?\s*[:=]\s*\\*[\"']?)?\b(?P<scheme>Bearer|Basic|Token|ApiKey)\s+"
    r"(?P<value>[A-Za-z0-9._~+/=-]{3,})",
    re.IGNORECASE,
)
# How a value is given to a name: name=, name: , "name": , ["name"] = , name: str = , name%3D. Not name ==, nor https://.
_NAME = r"(?<![A-Za-z0-9_])(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)"
_END_OF_NAME = r"(?:\\*[\"']\]?)?"
_ANNOTATION = r"(?:[ \t]*:[ \t]*[A-Za-z_][\w.\[\], |]{0,80}?(?=[ \t]*=))?"
_GIVES = r"(?:[ \t]*=>?(?!=)[ \t]*|\s*:(?!//|=)\s*|%3[Dd])"
_PREFIX = r"(?P<prefix>[rRbBuUfF]{0,2})"
# A text that is not closed ends with its line.
_TEXT = _PREFIX + r"(?P<open>\\*[\"'])(?P<value>[^\n]*?)(?:(?<!\\)(?P=open)|(?=\n)|$)"
_LONG_TEXT = _PREFIX + r"(?P<open>\"\"\"|''')(?P<value>.*?)(?:(?P=open)|$)"
_GIVEN = rf"(?P<head>{_NAME}{_END_OF_NAME}{_ANNOTATION}{_GIVES})"
_QUOTED, _LONG_QUOTED = re.compile(_GIVEN + _TEXT), re.compile(_GIVEN + _LONG_TEXT, re.DOTALL)
# os.environ.get("TOKEN", "…") and add_argument("--token", default="…").
_DEFAULT = re.compile(
    r"(?P<head>\b(?:get|getenv|pop|setdefault|putenv|setenv|add_argument|option)\(\s*[\"'](?:--?)?"
    r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[\"']\s*,\s*(?:[^\"'\n]*\bdefault\s*=\s*)?)" + _TEXT
)
# What begins a line may go on to its end: `password: correct horse`.
_LINE = re.compile(
    rf"^(?P<head>[ \t]*(?:-[ \t]+|export[ \t]+)?{_NAME}[\"']?[ \t]*[:=][ \t]+)(?P<value>[^\s\"'#=][^\n#]*)",
    re.MULTILINE,
)
_BARE = re.compile(
    rf"(?P<head>{_NAME}{_END_OF_NAME}{_GIVES})(?P<value>\[redacted\]|\$\{{[^{{}}]*\}}|(?![rRbBuUfF]{{1,2}}[\"'])[^\s&;,\"'`}}\])\\]+)"
)
# --api-key X within a longer text.
_OPTION = re.compile(
    r"(?P<head>(?<![^\s\"'(`])--?(?P<name>[A-Za-z][A-Za-z0-9_.-]*)[ \t]+)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|\[redacted\]|[^\s\"'`-][^\s\"'`]*)"
)
_WHOLE = re.compile(r"(?P<head>[+~]*(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?:=|:\s+))(?P<value>\S.*)", re.DOTALL)
# Code, not text: a call or a subscript, something in brackets, a value held by something else.
_WORKED_OUT = re.compile(
    r"(?P<call>[A-Za-z_][\w.]*[(\[].*|\{.*)|[(\[].*"
    r"|(?:self|cls|os|sys|torch|np|args|cfg|config|conf|opts?|params|hparams|kwargs|FLAGS|batch|sample|tokenizer|model|nn|F"
    r"|inspect|typing)(?:\.\w+)+",
    re.DOTALL,
)
_TYPE = re.compile(
    r"(?:str|int|float|bool|bytes|list|dict|tuple|set|object|Any|Tensor|Optional|Sequence|Callable)(?:\s*[=|,)].*)?",
    re.DOTALL,
)
_WIDTH = re.compile(r"[<>^.]\S*")
_NAMES = re.compile(r"[a-z_]+(?:\.[a-z_]+)*")
# … and as the end of one that is written in one piece: PGPASSWORD.
_SECRET_ENDINGS = ("password", "passwd", "passphrase", "apikey")
_SECRET_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("account", "key"), ("auth", "key")}
    | {("signing", "key"), ("encryption", "key"), ("license", "key"), ("ssh", "key"), ("storage", "key")}
    | {("connection", "string"), ("pass", "word"), ("session", "id"), ("client", "key"), ("service", "key")}
    | {("api", "keys"), ("access", "keys"), ("private", "keys"), ("auth", "tokens"), ("access", "tokens")}
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def redact_text(text: str) -> str:
    """The text without the secrets in it."""
    text = _PEM.sub(REDACTED, text)
    text = _USERINFO.sub(_without_password, text)
    text = _HOOK.sub(rf"\g<head>{REDACTED}", text)
    text = _BEARER.sub(_without_bearer, text)
    text = _SHAPES.sub(REDACTED, text)
    for quoted in (_LONG_QUOTED, _QUOTED, _DEFAULT):
        text = quoted.sub(_without_quoted, text)
    text = _BARE.sub(_without_bare, _LINE.sub(_without_line, text))
    return _OPTION.sub(_without_option, text)


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
        if word.startswith("-") and equals and _hides(name, value):
            result.append(f"{redact_text(name)}={REDACTED}")
        else:
            result.append(redact_text(_without_rest(word)))
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
    if isinstance(value, list | tuple) and is_secret_name(name):
        return [_redact_item(name, item) for item in value]
    # A number may be a password; a token's is its place in a vocabulary.
    if isinstance(value, int | float) and not isinstance(value, bool) and is_surely_secret_name(name):
        return REDACTED
    return redact(value)


def _hides(name: str, value: str) -> bool:
    """Is `value`, found under `name`, to be taken out?"""
    if _REFERENCE.fullmatch(value):
        return False
    if is_secret_name(name):
        is_ordinary = not is_surely_secret_name(name) and (_SHORT_NUMBER.fullmatch(value) or _SPECIAL.fullmatch(value))
        return value not in _NOTHING and not is_ordinary
    return is_doubtful_name(name) and _looks_random(value)


def _looks_random(value: str) -> bool:
    if not _RANDOM.fullmatch(value) or value.isalpha() or not any(c.isdigit() for c in value) or value[0] in "/.~":
        return False
    counts = [value.count(c) for c in set(value)]
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts)
    return bits >= _RANDOM_BITS_PER_CHARACTER


def _without_password(match: re.Match[str]) -> str:
    user, colon, _ = match["info"].partition(":")
    # A lone user name is no secret (git@host), a lone long one is a token (https://TOKEN@host).
    if colon:
        return f"{match['scheme']}{'' if len(user) >= 20 else user}:{REDACTED}@"
    return f"{match['scheme']}{REDACTED if len(user) >= 20 else user}@"


def _without_bearer(match: re.Match[str]) -> str:
    """What is no header may be prose: basic transforms, token embeddings."""
    is_bearer = match["scheme"].lower() == "bearer" and (not match["value"].isalpha() or len(match["value"]) >= 20)
    if match["header"] is None and not is_bearer and not _looks_random(match["value"]):
        return match[0]
    return f"{match['header'] or ''}{match['scheme']} {REDACTED}"


def _without_quoted(match: re.Match[str]) -> str:
    # print("token:", token): the quote closes what the name is in.
    is_outside = not match[0].endswith(match["open"]) and match["value"][:1] in (",", ")", " ", "")
    if is_outside or not _hides(match["name"], match["value"]):
        return match[0]
    end = match["open"] if match[0].endswith(match["open"]) and match["value"] else ""
    return f"{match['head']}{match['prefix']}{match['open']}{REDACTED}{end}"


def _without_line(match: re.Match[str]) -> str:
    value = match["value"].rstrip()
    after = match["value"][len(value) :]
    is_given = is_surely_secret_name(match["name"]) and not value.startswith(REDACTED)
    if not is_given or _is_code(match) or not _hides(match["name"], value):
        return match[0]
    return f"{match['head']}{REDACTED}{after}"


def _without_bare(match: re.Match[str]) -> str:
    if _is_code(match) or not _hides(match["name"], match["value"]):
        return match[0]
    return f"{match['head']}{REDACTED}"


def _is_code(match: re.Match[str]) -> bool:
    """Is what follows the name worked out, so that the secret is not in this text?"""
    name, value, head = match["name"], match["value"].rstrip(), match["head"]
    is_spaced = head[-1] in " \t"
    found = _WORKED_OUT.fullmatch(value)
    if value == name or (found and (is_spaced or found["call"])) or (is_spaced and _TYPE.fullmatch(value)):
        return True
    # x[token:end] is a slice, f"{token:>9}" a width.
    before = match.string[max(0, match.start() - 1) : match.start()]
    if head.endswith(":") and (before == "[" or (before == "{" and _WIDTH.fullmatch(value))):
        return True
    # A token is random, and not all of it small letters: token = word, token=hf_token.
    may_be_a_name = "=" in head and not is_surely_secret_name(name) and _NAMES.fullmatch(value) is not None
    return may_be_a_name and (is_spaced or is_secret_name(value))


def _without_option(match: re.Match[str]) -> str:
    if not _hides(match["name"], match["value"].strip("\"'")):
        return match[0]
    return f"{match['head']}{REDACTED}"


def _without_rest(word: str) -> str:
    """A word of a command line is one value, whatever spaces it has."""
    match = _WHOLE.fullmatch(word)
    return f"{match['head']}{REDACTED}" if match and _hides(match["name"], match["value"].strip("\"'")) else word


# Which names hold secrets: of variables, options, keys and headers.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that make a name secret, as whole parts of it: `hf_token` and `apiKey` are, `tokenizer` and `key_dim` are not.
_SECRET_WORDS = _words(
    "token secret secrets password passwords passwd passphrase passcode pwd apikey apikeys credential credentials "
    "bearer authorization cookie signature dsn sshpass"
)
# Those that are also ordinary words of a training script: a sentence has tokens, a function a signature.
_AMBIGUOUS_WORDS = _words("token signature")
# Words that make a name secret only if the value looks random.
_DOUBTFUL_WORDS = _words("key keys pass auth sig cred creds pat login tokens")
# … unless the name goes on to say that it counts or describes tokens, keys and the like.
_HARMLESS_AFTER = _words(
    "id ids index type types count counts limit limits length len max min size dim dims num file path dir name names "
    "level mode loss dropout mixer mixing per embedding embeddings embed budget prob ratio weight weights format "
    "method classification version url uri host port user username s drop keep merge mask shape pos position "
    "positions counter label labels pooling pool emb grid accuracy acc labeling map columns"
)
_HARMLESS_BEFORE = _words("num max min n pad eos bos mask unk sep cls special image per vocab total class dist")


def is_secret_name(name: str) -> bool:
    """Does a variable, option or key of this name hold a secret?"""
    return _secret_word(name) is not None


def is_surely_secret_name(name: str) -> bool:
    """The same, of a name that is never used for anything else."""
    word = _secret_word(name)
    return word is not None and word not in _AMBIGUOUS_WORDS


def is_doubtful_name(name: str) -> bool:
    """May a name like this hold a secret, depending on the value?"""
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
