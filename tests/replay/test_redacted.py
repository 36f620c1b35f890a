"""Show: a model whose every name is a secret's replays identically, at each level of redaction."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorder import programs

_TORCHREEL = (sys.executable, "-m", "torchreel.cli")

PROGRAM = """
import torch, torch.nn.functional as F
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Linear(4, 4)
        self.auth_conv = torch.nn.Conv2d(1, 1, 3, padding="same", padding_mode="reflect")
        self.secret_mode, self.passwd = "bilinear", "mean"
        self.api_key = torch.nn.Parameter(torch.randn(4, 4))
        self.credential = {"key": "tanh", "token": "floor"}
        self.private_key = torch.nn.ModuleDict({"access_key": torch.nn.GELU(approximate="tanh")})
        self.secrets = torch.nn.ParameterDict({"password": torch.nn.Parameter(torch.randn(4))})
    def forward(self, token, key):
        secret = self.token(token)
        api_key = torch.einsum("ij,kj->ik", secret, self.api_key)
        equation_token = "ij,jk->ki"
        auth = torch.einsum(equation_token, api_key, self.api_key)
        passwd = F.mse_loss(auth, secret, reduction="mean") + F.l1_loss(auth, secret, reduction=self.passwd)
        credential = F.gelu(auth, approximate=self.credential["key"])
        pwd = torch.div(credential, 3.0, rounding_mode=self.credential["token"])
        private = F.interpolate(key, scale_factor=2.0, mode=self.secret_mode, align_corners=False)
        cookie = self.auth_conv(private)
        secret_key = torch.meshgrid(pwd[0], pwd[1], indexing="ij")[0]
        auth_token = torch.linalg.norm(secret_key, ord="fro") + torch.norm(pwd, p="fro")
        index = torch.zeros(4, 4, dtype=torch.int64)
        password = torch.zeros(4, 4).scatter_reduce(0, index, pwd, reduce="amax", include_self=False)
        hub_token = torch.searchsorted(torch.arange(4.0), pwd, side="right")
        api_token = self.private_key["access_key"](pwd) + self.secrets["password"]
        secret_number = pwd.to(getattr(torch, "float64")).type("torch.FloatTensor")
        passphrase = F.kl_div(pwd, secret, reduction="batchmean")
        session_id = torch.empty(4, dtype=torch.float32, layout=torch.strided, device="cpu").zero_()
        losses = passwd + auth_token + passphrase + cookie.sum() + password.sum() + hub_token.sum()
        return losses + (api_token + secret_number + session_id).sum()
torch.manual_seed(0)
out = torch.compile(Model(), backend="aot_eager")(torch.randn(4, 4), torch.randn(1, 1, 4, 4))
out.sum().backward()
"""  # noqa: E501

BUILT = """
import torch, torch.nn.functional as F

class Auth(torch.nn.Module):
    def __init__(self, secret_mode="bilinear"):
        super().__init__()
        self.secret_mode, self.passwd = secret_mode, torch.nn.Linear(8, 8)
    def forward(self, token, mode="nearest", password="tanh"):
        y = F.interpolate(token[:, None], scale_factor=2, mode=self.secret_mode)
        return F.gelu(self.passwd(y[:, 0, ::2, ::2]), approximate=password)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.auth, self.credentials = Auth("bilinear"), {"reduce": "sum", "token": "constant"}
        self.api_key, self.passwd_mode = torch.nn.Parameter(torch.randn(8)), "mean"
    def forward(self, token, key, passwd):
        secret = self.auth(token, mode="nearest", password="tanh") * self.api_key
        secret = F.pad(secret, (1, 0), mode=self.credentials["token"])[..., 1:] + key
        loss = F.mse_loss(secret, passwd, reduction=self.passwd_mode)
        return loss + apply_secret("bij,bij->i", secret, mode="sum") + get_token(secret, "trunc")

def get_token(password, mode):
    return torch.div(password, 2.0, rounding_mode=mode).sum()
def apply_secret(equation, password, token="sum", mode="mean"):
    return torch.einsum(equation, password, password).sum() if token == "sum" else password

torch.manual_seed(0)
key = torch.randn(2, 4, 8)
torch.compile(Model())(torch.randn(2, 4, 8), key, key).sum().backward()
"""
"""What torch's functions are to do passes through calls with telling names."""


def _recorded(program: Path, text: str, level: str, **environment: str) -> Path:
    program.write_text(text)
    store = program.with_suffix(".db")
    command = [*_TORCHREEL, "record", "--redact", level, "-o", str(store), "--", sys.executable]
    subprocess.run(
        [*command, str(program)],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    return store


@pytest.mark.slow
@pytest.mark.parametrize("level", ["default", "all"])
def test_what_inductor_builds_of_telling_names_replays(tmp_path: Path, level: str) -> None:
    """Nothing comes from a cache: each event of Inductor is compared."""
    store = _recorded(tmp_path / "program.py", BUILT, level, **programs.ENVIRONMENT)
    for entry in ("graph", "aot"):
        command = [*_TORCHREEL, "replay", "--entry", entry, str(store)]
        replay = subprocess.run(command, capture_output=True, text=True)
        assert replay.returncode == 0, replay.stdout + replay.stderr
        assert "inductor.lowering" in replay.stdout
        assert "identical" in replay.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["default", "all"])
def test_a_model_whose_every_name_is_a_secrets_replays(tmp_path: Path, level: str) -> None:
    store = _recorded(tmp_path / "program.py", PROGRAM, level)
    replay = subprocess.run([*_TORCHREEL, "replay", str(store)], capture_output=True, text=True)
    assert replay.returncode == 0, replay.stdout + replay.stderr
    assert "identical" in replay.stdout.splitlines()
