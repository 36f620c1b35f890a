"""Show: a model whose every name is a secret's replays identically, at each level of redaction."""

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("level", ["default", "all"])
def test_a_model_whose_every_name_is_a_secrets_replays(tmp_path: Path, level: str) -> None:
    program, store = tmp_path / "program.py", tmp_path / "run.db"
    program.write_text(PROGRAM)
    torchreel = [sys.executable, "-m", "torchreel.cli"]
    command = ["record", "--redact", level, "-o", str(store), "--", sys.executable, str(program)]
    subprocess.run([*torchreel, *command], check=True, capture_output=True)
    replay = subprocess.run([*torchreel, "replay", str(store)], capture_output=True, text=True)
    assert replay.returncode == 0, replay.stdout + replay.stderr
    assert "identical" in replay.stdout.splitlines()
