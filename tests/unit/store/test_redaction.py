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


VALUE = "hunter2-Zk9"


@pytest.mark.parametrize(
    "text",
    [
        f'password = "{VALUE}"',
        f"password = '{VALUE}'  # of the database",
        f'    password: str = "{VALUE}"',
        f'api_key="{VALUE}"',
        f'login(user="me", token="{VALUE}", retries=3)',
        f'os.environ["HF_TOKEN"] = "{VALUE}"',
        f'token = os.environ.get("HF_TOKEN", "{VALUE}")',
        f'parser.add_argument("--api-key", type=str, default="{VALUE}")',
        f'{{"wandb": {{"api_key": "{VALUE}"}}}}',
        f'{{\\"token\\": \\"{VALUE}\\"}}',
        f"token: {VALUE}",
        f"  - secret: {VALUE} # mine",
        f"export PGPASSWORD={VALUE}",
        f"aws_secret_access_key = {VALUE}",
        f'password = "{VALUE} with spaces and \\"quotes\\""',
        f"passphrase: correct horse {VALUE} staple",
        f"password: {VALUE}, {VALUE}",
        f'token = f"""{VALUE}\n{VALUE}"""',
        f'secret = "{VALUE}',
        f"curl -H 'Authorization: Bearer {VALUE}' https://host",
        f"X-Api-Key: {VALUE}",
        f"train.py --api-key {VALUE} --lr 0.1",
        f'train.py --password "{VALUE} b" --lr 0.1',
        f"postgres://me:{VALUE}@db/runs",
        f"https://me:pa/{VALUE}@host/x",
        f"https://{VALUE}{VALUE}@host/x",
        f"https://hooks.slack.com/services/T0/B0/{VALUE}",
        f"nvapi-{VALUE}{VALUE}",
    ],
)
def test_secrets_are_gone_as_people_write_them(text: str) -> None:
    stored = redact_text(text)

    assert VALUE not in stored and REDACTED in stored
    assert redact_text(stored) == stored
    assert VALUE not in str(redact({"snippets": [{"text": text}], "list": [text, 1]}))


@pytest.mark.parametrize(
    "argv",
    [
        ("--api-key", "two words"),
        ("--api-key=two words",),
        ("api_key=two words",),
        ("+db.password=two words",),
        ("-H", "X-Api-Key: two words"),
        ("sh", "-c", "train.py --token two words"),
    ],
)
def test_a_word_of_a_command_line_is_one_secret_with_its_spaces(argv: tuple[str, ...]) -> None:
    stored = " ".join(redact_argv(argv))

    assert "two" not in stored and stored.endswith((REDACTED, f"{REDACTED} words"))


@given(secret_names, st.text(LETTERS + " -_!?,;:/", min_size=6, max_size=40).map(lambda s: f"Q7{s}7Q"))
def test_a_text_in_quotes_is_gone_whatever_it_holds(name: str, value: str) -> None:
    for text in (f'{name} = "{value}"', f"{name}='{value}'", f'"{name}": "{value}"', f'f({name}="{value}", x=1)'):
        stored = redact_text(text)
        assert value not in stored and "7Q" not in stored, text
        assert redact_text(stored) == stored


def test_secrets_in_a_config_are_gone_whatever_their_kind() -> None:
    config = {
        "password": 1234,
        "api_keys": ["a", "b"],
        "db": {"passwd": ["c"]},
        "token": 5,
        "tokens": [1, 2],
        "pwd": None,
    }

    assert redact(config) == {
        "password": REDACTED,
        "api_keys": [REDACTED, REDACTED],
        "db": {"passwd": [REDACTED]},
        "token": 5,
        "tokens": [1, 2],
        "pwd": None,
    }


@pytest.mark.parametrize(
    "text",
    [
        "train.py --tokenizer bert --max-tokens 512 --lr 3e-4",
        "tokens=512 tokens_per_s=3 n_tokens: 8",
        "key=value other: thing",
        "for key, value in batch.items():",
        "token = next(stream)",
        'token = batch["token"]',
        "token = self.vocab[word]",
        "token = args.token",
        "def embed(self, token: Tensor, position: int) -> Tensor:",
        "def forward(self, token: torch.Tensor):",
        "token == other and token != last",
        "token = word",
        'self.video_token = "<|video|>"',
        'word_delimiter_token="|", image_end_token="[IMG_END]"',
        'print("Predicted token:", predicted_token)',
        "token = mrph.text",
        "vocab[token] = index",
        'load(name, token=token, revision="main")',
        "load(name, token=hf_token)",
        'kwargs["token"] = token',
        'token=kwargs.get("token"),',
        "password = getpass.getpass()",
        'password = getpass("database: ")',
        "login(password=password)",
        "if (image_token := find(self)) is not None:",
        'url = f"http://{host}/?token={self.token}"',
        "Passing `token=True` is required",
        "the token to use as bearer authorization",
        "self.signature_columns = signature_columns",
        "x = x[token:end]",
        'print(f"{token:>10} {loss:.3f}")',
        "signature = inspect.signature(forward)",
        "cls_token = nn.Parameter(torch.zeros(1, 1, dim))",
        'tokenizer.pad_token = "<pad>"',
        'AutoTokenizer.from_pretrained("bert", eos_token="</s>")',
        "token_drop: 0.1",
        "token=7",
        "the basic transforms and token embeddings of a model",
        "http://127.0.0.1:8080/path@v2/file",
        "https://host:443/a?b=c",
        "password: ${oc.env:DB_PASSWORD}",
        "password=${DB_PASSWORD} token=${a.b}",
        "password = None",
        "use_auth_token=False",
        "author: someone, keyboard: qwerty, monkey = 3",
        "if key == 'state_dict': state = value",
        "cookiecutter: 2.1",
        "keys = sorted(batch)",
    ],
)
def test_ordinary_code_and_text_is_kept(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "piece", ["a", "a:", "token: ", 'token="', "://a:", "--a ", " ", "token: x ", "a=", "eyJ", "'"]
)
def test_a_long_text_does_not_take_long(piece: str) -> None:
    long = piece * (20_000 // len(piece))

    assert len(redact_text(f"password: x{long}")) <= len(long) * 12
