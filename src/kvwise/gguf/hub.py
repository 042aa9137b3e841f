"""Models of the Hugging Face Hub: `owner/repo[:file|quant]` to a file there or in its cache.

Which file a quant means follows common/download.cpp of llama.cpp b10605. HF_ENDPOINT, HF_TOKEN,
HF_HOME and HF_HUB_OFFLINE mean what they mean to huggingface_hub, which is imported when needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvwise.errors import SourceError, UsageError
from kvwise.gguf.lies import clip
from kvwise.gguf.sidecar import beside_model
from kvwise.gguf.source import Source, SourceMissing, open_file

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
DEFAULT_QUANTS: Final = ("Q4_K_M", "Q8_0")
_NOT_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_SHARD = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)
_SHOWN = 6
_TIMEOUT = 20.0
_NO_HUB = (ValueError, TypeError, AttributeError, KeyError)
"""What huggingface_hub raises for an answer that is not one of a Hub."""


def endpoint() -> str:
    """The Hub's address: HF_ENDPOINT or the public one."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def offline() -> bool:
    """HF_HUB_OFFLINE, read as huggingface_hub reads it."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def open_hub(name: str, sidecars: Sequence[str] = ()) -> Source:
    """The file that `owner/repo[:file|quant]` means; `sidecars` as in `pick`.

    Raises UsageError for what is no name, SourceMissing when the repository or the file is not
    there (with what is), SourceError when the Hub cannot be reached or refuses.
    """
    repo, _, wanted = name.partition(":")
    if not _REPO.fullmatch(repo):
        raise UsageError(
            "{name!r} is not a repository of the Hub", name=clip(name),
            hint="write hf:owner/repo, hf:owner/repo:Q8_0 or hf:owner/repo:file.gguf",
        )  # fmt: skip
    if offline():
        return _open_cached(repo, wanted, sidecars)
    try:
        files, revision = _list(repo)
    except HubUnreachable:
        if _snapshot(repo) is None:
            raise
        return _open_cached(repo, wanted, sidecars)
    return _open_listed(repo, pick(files, wanted, repo, sidecars), revision)


class HubUnreachable(SourceError):
    """The Hub did not answer, or not as a Hub does."""


def pick(files: list[str], wanted: str, repo: str, sidecars: Sequence[str] = ()) -> str:
    """The file of a repository that a file name, a quant or nothing means. Raises SourceMissing.

    `sidecars`: words that mark files beside a model (`mtp-`). A file with one of them goes before
    the model itself, that with the first word before others, unless a file was named.
    """
    if wanted.lower().endswith(".gguf"):
        if wanted in files:
            return wanted
        raise _no_file(files, wanted, repo)
    model = _best_model(files, wanted)
    for word in sidecars:
        found = beside_model(files, model, word, wanted)
        if found:
            return found
    if model:
        return model
    raise _no_file(files, wanted or "a model", repo)


def _best_model(files: list[str], wanted: str) -> str:
    """The model of that quant, of a usual one, or the first; empty if there is none."""
    models = [path for path in files if _is_first_of_model(path)]
    for quant in (wanted,) if wanted else DEFAULT_QUANTS:
        pattern = re.compile(re.escape(quant) + "[.-]", re.IGNORECASE)
        found = next((path for path in models if pattern.search(path)), None)
        if found:
            return found
    return models[0] if models and not wanted else ""


def _is_first_of_model(path: str) -> bool:
    base = path.rpartition("/")[2]
    shard = _SHARD.search(path)
    return (
        path.endswith(".gguf")
        and not any(word in base for word in _NOT_MODELS)
        and (shard is None or int(shard[1]) == 1)
    )


def _no_file(files: list[str], wanted: str, repo: str) -> SourceMissing:
    models = [clip(path) for path in files if path.endswith(".gguf")]
    more = ", ..." if len(models) > _SHOWN else ""
    hint = "it has {files}" if models else "look for a repository whose name ends in -GGUF"
    return SourceMissing(
        "{repo} has no GGUF file for {wanted}",
        repo=repo, wanted=clip(wanted), files=", ".join(models[:_SHOWN]) + more, hint=hint,
    )  # fmt: skip


def token_headers() -> dict[str, str]:
    """The header that shows the user's token, if there is one (HF_TOKEN, or a login)."""
    from huggingface_hub import get_token  # noqa: PLC0415

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _list(repo: str) -> tuple[list[str], str]:
    """The files of a repository in the order of the Hub, and the revision of `main`."""
    import httpx2  # noqa: PLC0415
    from huggingface_hub import HfApi, errors  # noqa: PLC0415

    try:
        about = HfApi(endpoint=endpoint()).model_info(repo, timeout=_TIMEOUT)
    except errors.GatedRepoError as error:
        raise SourceError(
            "{repo} is gated: its owner must let you in", repo=repo,
            hint="accept its terms on the Hub, then set HF_TOKEN",
        ) from error  # fmt: skip
    except errors.RepositoryNotFoundError as error:
        raise SourceMissing(
            "the Hub has no repository {repo}", repo=repo,
            hint="check the name; a private one needs HF_TOKEN",
        ) from error  # fmt: skip
    except (errors.HfHubHTTPError, httpx2.HTTPError, httpx2.InvalidURL, OSError, *_NO_HUB) as error:
        raise HubUnreachable(
            "cannot list {repo} on {hub}: {why}",
            repo=repo, hub=endpoint(), why=clip(str(error).partition("\n")[0]),
            hint="check the network; HF_ENDPOINT names a mirror, HF_HUB_OFFLINE=1 uses its cache",
        ) from error  # fmt: skip
    files = [row.rfilename for row in about.siblings or []]
    # A mirror may be hostile: no name leads out of the folder that it is joined to.
    inside = [path for path in files if not {"", ".", ".."} & set(re.split(r"[/\\]", path))]
    return inside, about.sha or ""


def _url(repo: str, path: str) -> str:
    from huggingface_hub import hf_hub_url  # noqa: PLC0415

    return hf_hub_url(repo, path, endpoint=endpoint())


def _open_listed(repo: str, path: str, revision: str) -> Source:
    """The file on this machine if this very revision was downloaded, else the Hub's."""
    from kvwise.gguf.remote import HttpSource  # noqa: PLC0415

    snapshot = _snapshot(repo)
    if snapshot is not None and snapshot.name == revision and (snapshot / path).is_file():
        return open_file(str(snapshot / path))
    return HttpSource(_url(repo, path), headers=token_headers())


def _open_cached(repo: str, wanted: str, sidecars: Sequence[str]) -> Source:
    """From what huggingface_hub has downloaded, else from the headers that we have kept."""
    from kvwise.gguf.remote import HttpSource  # noqa: PLC0415

    snapshot = _snapshot(repo)
    if snapshot is not None:
        files = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf"))
        if files:
            return open_file(str(snapshot / pick(files, wanted, repo, sidecars)))
    if wanted.lower().endswith(".gguf"):
        from kvwise.gguf.header_cache import load  # noqa: PLC0415

        if load(_url(repo, wanted)):
            return HttpSource(_url(repo, wanted), trust_cache=True)
    raise SourceMissing(
        "{repo} is not in the Hub's cache, and HF_HUB_OFFLINE is set", repo=repo,
        hint="unset HF_HUB_OFFLINE, or download the model first",
    )  # fmt: skip


def _snapshot(repo: str) -> Path | None:
    """The folder of the revision that `main` stood for when it was last downloaded."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    home = Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface")
    root = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = root / f"models--{repo.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    if not re.fullmatch(r"[0-9A-Za-z._-]{1,128}", revision) or revision.startswith("."):
        return None
    snapshot = folder / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None


def page_to_file(url: str) -> tuple[str, dict[str, str]]:
    """The file that a Hub page shows (`/blob/` becomes `/resolve/`), and the headers to ask with.

    The token goes to the Hub alone: any other URL comes back as it is, without headers.
    """
    if not url.startswith((f"{endpoint()}/", f"{DEFAULT_ENDPOINT}/")):
        return url, {}
    return re.sub(r"^(https?://[^/]+/[^/]+/[^/]+)/blob/", r"\1/resolve/", url), token_headers()


def path_in_repo(name: str) -> str:
    """The path inside its repository of a file that came from the Hub or its cache; empty for any
    other. `name` is that of its source."""
    found = re.search(r"(?:^https?://.*?/resolve|[/\\]snapshots)[/\\][^/\\]+[/\\](.+)$", name)
    return found[1].replace("\\", "/") if found else ""
