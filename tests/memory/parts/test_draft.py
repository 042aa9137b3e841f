"""A draft beside its target: its own lines, at the target's context, with its own flags."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import cache_setup as setup

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.engine.on_disk import named
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Extra, Ledger
from kvwise.memory.parts.beside import _notes
from kvwise.memory.parts.companions import Companions
from kvwise.memory.parts.draft import by_its_file, sidecars
from kvwise.memory.report import ledger_json
from kvwise.memory.zoo_config import read_config
from kvwise.options import to_argv
from kvwise.units import GIB

GPU = Device("A", "generic", 24 * GIB, 24 * GIB, index=0)
SECOND = Device("B", "generic", 24 * GIB, 24 * GIB, index=1)
QWEN, SMALL = "qwen3-8b", "qwen3-0.6b"


def ledger(words: str, *devices: Device, target: str = QWEN, draft: str = SMALL) -> Ledger:
    launch = Launch.parse(["-md", f"{draft}.gguf", *words.split()])
    companions = Companions(draft=setup.zoo_model(draft))
    return account(setup.zoo_model(target), launch, devices, companions=companions)


def summed(found: tuple[Extra, ...], of: str) -> Counter[str]:
    """Bytes per kind over all buffers of one companion."""
    total: Counter[str] = Counter()
    for extra in found:
        if extra.of == of:
            total["weights"] += extra.weights_bytes
            total["context"] += extra.context_bytes
            total["compute"] += extra.compute_bytes
            total["output"] += extra.output_bytes
    return +total


def alone(words: str, *devices: Device, model: str = SMALL) -> Counter[str]:
    """The same model as the only one."""
    made = account(setup.zoo_model(model), Launch.parse(words.split()), devices)
    total: Counter[str] = Counter()
    for line in made.lines:
        total["weights"] += line.weights_bytes
        total["context"] += line.context_bytes
        total["compute"] += line.compute_bytes
        total["output"] += line.output_bytes
    return +total


class TestModel:
    def test_is_what_it_would_be_alone_at_the_targets_context(self) -> None:
        both = ledger("-c 8000 -np 2 --spec-type draft-simple", GPU)
        assert both.context.n_ctx == 8192
        assert summed(both.extras, "draft") == alone("-c 8192 -np 2", GPU)

    def test_training_length_of_the_target_counts(self) -> None:
        both = ledger("--spec-type draft-simple", GPU, draft="smollm2-135m")
        trained = setup.zoo_model(QWEN).n_ctx_train
        assert summed(both.extras, "draft") == alone(f"-c {trained}", GPU, model="smollm2-135m")

    def test_has_its_own_cache_types_and_layers(self) -> None:
        words = "-c 4096 -ctk q8_0 -ctv q8_0 --spec-type draft-simple"
        both = ledger(f"{words} -ctkd q4_0 -ctvd q4_0 -ngld 10", GPU)
        assert summed(both.extras, "draft") == alone("-c 4096 -ctk q4_0 -ctv q4_0 -ngl 10", GPU)
        plain = ledger(words, GPU)
        assert summed(plain.extras, "draft") == alone("-c 4096", GPU)  # f16 unless asked

    def test_keeps_the_targets_other_settings(self) -> None:
        words = "-c 4096 -ub 128 -nkvo -fa off"
        both = ledger(f"{words} --spec-type draft-simple", GPU)
        assert summed(both.extras, "draft") == alone(words, GPU)

    def test_may_stand_on_a_device_that_the_target_does_not_use(self) -> None:
        both = ledger("-c 4096 -dev VGPU0 -devd VGPU1 --spec-type draft-simple", GPU, SECOND)
        assert [line.device for line in both.lines] == ["A", "B", None]
        assert both.lines[0].extra_bytes == 0
        second = both.lines[1]
        assert (second.weights_bytes, second.context_bytes, second.compute_bytes) == (0, 0, 0)
        assert second.total_bytes == second.extra_bytes > 0
        assert second.free_bytes == SECOND.free_bytes

    def test_does_not_follow_the_targets_devices(self) -> None:
        both = ledger("-c 4096 -dev VGPU1 --spec-type draft-simple", GPU, SECOND)
        assert {line.device: bool(line.extra_bytes) for line in both.lines} == {
            "B": True, "A": True, None: True,
        }  # fmt: skip

    def test_overrides(self) -> None:
        words = "-c 4096 --spec-type draft-simple"
        host = ledger(f"{words} -otd .*=CPU", GPU)
        plain = ledger(words, GPU)
        on_gpu = [
            sum(e.weights_bytes for e in each.extras if e.device == 0) for each in (plain, host)
        ]
        assert on_gpu[0] > 0
        assert on_gpu[1] == 0

    def test_counts_in_totals_and_decides_what_fits(self) -> None:
        plain = account(setup.zoo_model(QWEN), Launch.parse(["-c", "4096"]), (GPU,))
        need = plain.lines[0].total_bytes
        tight = replace(GPU, free_bytes=need + 1000)
        assert account(setup.zoo_model(QWEN), Launch.parse(["-c", "4096"]), (tight,)).fits
        both = ledger("-c 4096 --spec-type draft-simple", tight)
        line = both.lines[0]
        assert not both.fits
        assert line.total_bytes - need >= line.extra_bytes > 0
        assert both.misses_by_bytes == line.total_bytes - tight.free_bytes

    def test_unused_without_a_kind_of_speculation(self) -> None:
        both = ledger("-c 4096", GPU)
        assert summed(both.extras, "draft") == alone("-c 4096", GPU)
        assert [note.code for note in both.notes] == ["draft_not_used"]

    @pytest.mark.parametrize(
        ("draft", "kind"), [("tiny-dflash", "draft-dflash"), ("glm-4.5-air", "draft-mtp")]
    )
    def test_a_file_that_says_its_kind_is_counted_as_if_it_were_asked_for(
        self, draft: str, kind: str
    ) -> None:
        target, beside = setup.zoo_model(QWEN), Companions(draft=setup.zoo_model(draft))
        words = ["-c", "4096", "-md", "d.gguf"]
        implied, asked_for, not_wanted = (
            account(target, Launch.parse([*words, *more]), (GPU,), companions=beside)
            for more in ([], ["--spec-type", kind], ["--spec-type", "none"])
        )
        assert implied.launch.spec_types == (kind,)
        assert implied.lines == asked_for.lines
        assert not [note for note in implied.notes if note.code == "not_counted"]
        assert implied.host.total_bytes > not_wanted.host.total_bytes
        assert [note.code for note in not_wanted.notes] == ["draft_not_used"]
        assert "--spec-type none" in " ".join(to_argv(not_wanted.launch))

    def test_an_older_build_may_look_into_the_file_or_not(self) -> None:
        launch = replace(Launch.parse(["-md", "d.gguf"]), build="b10000")
        beside = Companions(draft=setup.zoo_model("tiny-dflash"))
        assert by_its_file(launch, beside.draft) == launch
        (note,) = _notes(launch, beside)
        assert note.code == "not_counted"
        assert "--spec-type draft-dflash, or none" in str(note.message)

    @pytest.mark.parametrize(
        ("ref", "file", "kind"),
        [
            ("hf:some/mtp-GGUF", "eagle3-Q8_0.gguf", "draft-eagle3"),
            ("hf:some/mtp-GGUF:Q8_0", "sub/dspark-x-Q8_0.gguf", "draft-dspark"),
            ("hf:some/mtp-GGUF", "model-Q8_0.gguf", None),
            ("hf:some/mtp-GGUF:eagle3-Q8_0.gguf", "eagle3-Q8_0.gguf", None),
        ],
    )
    def test_a_repository_tells_the_kind_by_the_name_of_the_file_that_it_gives(
        self, ref: str, file: str, kind: str | None
    ) -> None:
        url = f"https://huggingface.co/some/mtp-GGUF/resolve/main/{file}"
        draft = replace(setup.zoo_model("tiny-dflash"), path=url)
        launch = Launch(model_draft=ref)
        assert by_its_file(launch, draft).spec_types == ((kind,) if kind else ())
        (note, *_) = _notes(launch, Companions(draft=draft))
        assert note.code == ("draft_not_used" if kind is None else "not_counted")

    def test_an_engine_is_asked_for_that_kind_too(self) -> None:
        url = "https://huggingface.co/some/repo/resolve/main/eagle3-x.gguf"
        draft = replace(setup.zoo_model("tiny-eagle3"), path=url)
        _, launch = named(
            setup.zoo_model(QWEN), Launch(model_draft="hf:some/repo"), Companions(draft=draft)
        )
        assert (launch.model_draft, launch.spec_types) == ("DRAFT-TWIN", ("draft-eagle3",))

    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            ("", ("mtp-", "dspark-", "dflash-", "eagle3-")),
            ("--spec-type none", ()),
            ("--spec-type draft-simple", ()),
            ("--spec-type draft-dspark,draft-eagle3,ngram-mod", ("eagle3-", "dspark-")),
        ],
    )
    def test_files_of_a_repository_that_go_before_its_model(
        self, words: str, wanted: tuple[str, ...]
    ) -> None:
        launch = Launch.parse(["-hfd", "some/repo", *words.split()])
        assert sidecars(launch) == wanted
        assert sidecars(replace(launch, build="b10000")) == ()

    @pytest.mark.parametrize(
        ("words", "said"),
        [("-m x.gguf -hfd some/repo", True), ("-hf some/model -hfd some/repo", False),
         ("-m x.gguf -md y.gguf", False)],
    )  # fmt: skip
    def test_a_draft_that_the_server_would_not_look_up_is_said(
        self, words: str, said: bool
    ) -> None:
        beside = Companions(draft=setup.zoo_model(SMALL))
        for tool, wanted in (("llama-server", said), ("llama-cli", False)):
            found = [note.code for note in _notes(Launch.parse(words.split(), tool=tool), beside)]
            assert ("draft_not_found" in found) is wanted

    @pytest.mark.parametrize("name", ["glm-4.5-air", "qwen3.6-35b-a3b-mtp"])
    def test_layers_of_the_main_model_are_never_turned_on_by_themselves(self, name: str) -> None:
        model = setup.zoo_model(name)
        plain = account(model, Launch.parse(["-c", "4096"]), (GPU,))
        drafting = account(model, Launch.parse(["-c", "4096", "--spec-type", "draft-mtp"]), (GPU,))
        assert not plain.launch.load_mtp
        weights = [sum(line.weights_bytes for line in each.lines) for each in (plain, drafting)]
        assert weights[0] < weights[1]
        (said,) = [note for note in plain.notes if note.code == "unused_tensors_skipped"]
        assert "--spec-type draft-mtp" in str(said.message)

    def test_not_opened_is_said(self) -> None:
        launch = Launch.parse(["-c", "4096", "-md", "x.gguf", "--spec-type", "draft-simple"])
        made = account(setup.zoo_model(QWEN), launch, (GPU,))
        assert [note.code for note in made.notes] == ["not_counted"]
        assert not summed(made.extras, "draft")

    @pytest.mark.parametrize(
        ("words", "said"),
        [("--spec-type draft-eagle3", True), ("--spec-type draft-mtp", False),
         ("--spec-type ngram-mod", False), ("", False)],
    )  # fmt: skip
    def test_a_kind_without_its_draft_is_said(self, words: str, said: bool) -> None:
        launch = Launch.parse(["-c", "4096", *words.split()])
        made = account(setup.zoo_model("qwen3.6-35b-a3b-mtp"), launch, (GPU,))
        found = [str(note.message) for note in made.notes if note.code == "not_counted"]
        assert any("none is named" in text for text in found) is said

    def test_refused_as_the_engine_would(self) -> None:
        with pytest.raises(Refused) as caught:
            ledger("-c 4096 -fa off -ctvd q4_0 --spec-type draft-simple", GPU)
        assert caught.value.code == "v_quant_needs_flash_attn"

    def test_mtp_on_a_draft_without_such_layers_is_refused(self) -> None:
        with pytest.raises(Refused) as caught:
            ledger("-c 4096 --spec-type draft-mtp", GPU)
        assert caught.value.code == "mtp_unavailable"


class TestBorrowedHeads:
    """EAGLE-3 and DFlash may have no embeddings of their own: fine beside a target."""

    @pytest.mark.parametrize(
        ("name", "kind"), [("tiny-eagle3", "eagle3"), ("tiny-dflash", "dflash")]
    )
    def test_without_embeddings(self, name: str, kind: str) -> None:
        whole = setup.zoo_model(name).header
        kept = [t for t in whole.tensors if t.name not in {"token_embd.weight", "output.weight"}]
        bare = describe(replace(whole, tensors=tuple(kept)))
        launch = Launch.parse(["-c", "1024", "-md", "x", "--spec-type", f"draft-{kind}"])
        with pytest.raises(Refused):
            account(bare, Launch.parse(["-c", "1024"]), (GPU,))
        beside = Companions(draft=bare)
        if kind == "eagle3":  # llama.cpp takes one layer, the recorded one has more
            with pytest.raises(Refused, match="numbers a token"):
                account(setup.zoo_model(QWEN), launch, (GPU,), companions=beside)
            return
        made = account(setup.zoo_model("tiny-llama"), launch, (GPU,), companions=beside)
        found = summed(made.extras, "draft")
        assert found["weights"] == sum(-(-t.nbytes // 128) * 128 for t in kept)
        assert found["context"] > 0
        assert all(e.basis["compute"] == "computed" for e in made.extras if e.compute_bytes)

    @pytest.mark.parametrize("layers", [(1, 2, 99), (1, 2, 6)])
    def test_layers_that_the_target_does_not_have(self, layers: tuple[int, ...]) -> None:
        draft = replace(setup.zoo_model("tiny-dflash"), target_layers=layers)
        launch = Launch.parse(["-c", "1024", "-md", "x", "--spec-type", "draft-dflash"])
        with pytest.raises(Refused) as caught:
            account(setup.zoo_model("tiny-llama"), launch, (GPU,), companions=Companions(draft))
        assert caught.value.code == "draft_cannot_read_target"

    @pytest.mark.parametrize(("build", "rows"), [("b10605", 128), ("b11549", 2 * 4)])
    def test_the_encoder_writes_a_row_for_each_token_it_takes(self, build: str, rows: int) -> None:
        """Newer builds take a target's features in without it, and DFlash guesses four at once."""
        words = ["-c", "4096", "-np", "2", "-ub", "128", "-md", "x", "--spec-type", "draft-dflash"]
        draft = setup.zoo_model("tiny-dflash")
        launch = Launch.parse(words, build=build)
        made = account(setup.zoo_model("tiny-llama"), launch, (GPU,), companions=Companions(draft))
        grown = next(e.output_bytes for e in made.extras if e.of == "speculation")
        kept = 4 * draft.n_vocab + draft.n_embd + 1
        assert grown == 4 * (rows * kept - 2 * draft.n_vocab)

    def test_a_target_that_hands_nothing_on(self) -> None:
        launch = Launch.parse(["-c", "1024", "-md", "x", "--spec-type", "draft-dflash"])
        beside = Companions(draft=setup.zoo_model("tiny-dflash"))
        with pytest.raises(Refused) as caught:
            account(setup.zoo_model("tiny-mimo2"), launch, (GPU,), companions=beside)
        assert caught.value.code == "draft_cannot_read_target"


class TestMTP:
    @pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-4.5-air", "qwen3.6-35b-a3b-mtp"])
    def test_is_the_measured_context_with_one_row_for_each_slot(self, name: str) -> None:
        """The measured ones have a row of scores for every token; llama-server asks for few."""
        golden = setup.golden(name)
        row = next(r for r in golden["results"] if r["config"].get("mtp") and r["result"]["ok"])
        zoo = read_config({**golden["defaults"], **row["config"]})
        launch = replace(zoo.launch, mtp=False, spec_types=("draft-mtp",))
        model = setup.zoo_model(name)
        made = account(model, launch, zoo.devices, compute_mode="no-alloc")
        apart = account(
            model, replace(zoo.launch, n_outputs_max=1), zoo.devices, compute_mode="no-alloc"
        )
        assert summed(made.extras, "mtp") == {
            "context": sum(buffer["context"] for buffer in row["result"]["buffers"]),
            "compute": sum(line.compute_bytes for line in apart.lines),
            "output": row["result"]["output_buffer_bytes"],
        }

    def test_runs_on_the_targets_weights(self) -> None:
        launch = Launch.parse(["-c", "4096", "--spec-type", "draft-mtp"])
        made = account(setup.zoo_model("qwen3.6-35b-a3b-mtp"), launch, (GPU,))
        assert summed(made.extras, "mtp")["weights"] == 0
        assert summed(made.extras, "mtp")["context"] > 0

    def test_state_snapshots_are_the_targets(self) -> None:
        model = setup.zoo_model("qwen3.6-35b-a3b-mtp")
        plain = account(model, Launch.parse(["-c", "4096"]), (GPU,))
        made = account(
            model,
            Launch.parse(["-c", "4096", "--spec-type", "draft-mtp", "--spec-draft-n-max", "5"]),
            (GPU,),
        )
        states = [
            sum(c.nbytes for c in each.caches if c.kind == "recurrent") for each in (plain, made)
        ]
        assert states[1] == 6 * states[0]


class TestSpeculation:
    def test_rows_of_scores(self) -> None:
        both = ledger("-c 4096 -np 3 --spec-draft-n-max 7 --spec-type draft-simple", GPU)
        assert summed(both.extras, "speculation") == {
            "output": 4 * setup.zoo_model(QWEN).n_vocab * 3 * 7
        }

    def test_n_grams_need_no_draft(self) -> None:
        launch = Launch.parse(["-c", "4096", "-np", "1", "--spec-type", "ngram-simple"])
        made = account(setup.zoo_model(QWEN), launch, (GPU,))
        assert summed(made.extras, "speculation") == {
            "output": 4 * setup.zoo_model(QWEN).n_vocab * 48
        }

    def test_none_without_speculation(self) -> None:
        made = account(setup.zoo_model(QWEN), Launch.parse(["-c", "4096"]), (GPU,))
        assert not summed(made.extras, "speculation")


def test_json_has_a_row_for_every_buffer() -> None:
    both = ledger("-c 4096 --spec-type draft-simple", GPU)
    document: dict[str, Any] = ledger_json(both)
    rows = [row for row in document["extras"] if row["of"] == "draft"]
    assert (rows[0]["device"], rows[0]["host"]) == ("A", False)
    gpu = document["buffers"][0]
    assert gpu["extra_bytes"] == sum(r["total_bytes"] for r in rows if not r["host"])
    assert gpu["total_bytes"] == (
        gpu["weights_bytes"] + gpu["context_bytes"] + gpu["compute_bytes"] + gpu["output_bytes"]
        + gpu["extra_bytes"] + gpu["overhead_bytes"]
    )  # fmt: skip
    assert all(row["reasons"] for row in document["extras"] if row["context_bytes"])


def test_two_models_of_one_device_share_one_driver_context() -> None:
    gpu = Device("C", "cuda", 24 * GIB, 24 * GIB, sm_count=24)
    both = ledger("-c 4096 --spec-type draft-simple", gpu)
    plain = account(setup.zoo_model(QWEN), Launch.parse(["-c", "4096"]), (gpu,))
    assert both.lines[0].overhead_bytes == plain.lines[0].overhead_bytes > 0


def test_host_draft_counts_against_the_host() -> None:
    launch = Launch.parse(["-c", "4096", "-md", "x", "--spec-type", "draft-simple"])
    model: Model = setup.zoo_model(SMALL)
    host = Host(4 * GIB, 4 * GIB)
    made = account(model, launch, (), host=host, companions=Companions(draft=model))
    line = made.host
    assert line.headroom_bytes == 4 * GIB - line.total_bytes
    assert line.total_bytes > 2 * line.weights_bytes
