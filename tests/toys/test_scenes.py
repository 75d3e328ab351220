"""Scenes with media: every kind that a model takes, alone, together, and divided among processes."""

from omni_kit.toys.batches.protocol import Preparation
from omni_kit.toys.batches.scenarios import media_ways
from omni_kit.toys.batches.scenes import APART, SCENES, SHARED, with_kinds


def test_a_model_meets_no_medium_that_it_does_not_take() -> None:
    for kinds in ("I", "IV", "IVS"):
        letters = {letter for rows in SCENES.values() if with_kinds(rows, kinds) for letter in "".join(rows)}
        assert letters == {*kinds, "T", "L"}


def test_media_that_no_forward_takes_together_stand_in_scenes_of_their_own() -> None:
    scenes = [rows for rows in SCENES.values() if with_kinds(rows, "I|V")]

    assert ("TIT",) in scenes
    assert ("TVT",) in scenes
    assert not any({*"IV"} <= {*"".join(rows)} for rows in scenes)
    assert all(with_kinds(rows, "I|V") for rows in APART["an image here, a film there"])


def test_samples_of_every_medium_are_packed_with_others() -> None:
    for kinds in ("I", "IV", "IVS"):
        several = [rows for rows in SCENES.values() if len(rows) > 1 and with_kinds(rows, kinds)]
        assert {*kinds} <= {letter for rows in several for letter in "".join(rows)}


def test_every_scene_is_prepared_and_packed_and_a_single_one_with_media_also_left_to_the_model() -> None:
    ways = list(media_ways(lambda rows: {}, "IV"))
    forms: dict[str, list[str]] = {}
    for way in ways:
        forms.setdefault(way.name.rpartition(", ")[0], []).append(way.preparation)

    assert forms["a film"] == [Preparation.alone, Preparation.unprepared, Preparation.packed]
    assert forms["text alone"] == [Preparation.alone, Preparation.packed]
    assert "a sound" not in forms
    assert all(way.backward for way in ways)


def test_processes_meet_media_in_one_part_across_cuts_and_in_none() -> None:
    assert all(len(parts) == 1 for parts in SHARED.values())
    assert all(len(parts) == 4 for parts in APART.values())
    for scenes in (SHARED, APART):
        media = [{*"".join("".join(rows) for rows in parts)} & {*"IVS"} for parts in scenes.values()]
        assert set() in media
        assert {"I"} in media
        assert {"S"} in media


def test_somewhere_the_other_of_two_processes_has_no_media() -> None:
    """Of four parts, the first and third go to one process, the second and fourth to the other."""
    of_one = [{*"".join("".join(rows) for rows in parts[turn::2])} for parts in APART.values() for turn in (0, 1)]
    assert {"T", "L"} in of_one
    assert any("V" in letters and "I" not in letters for letters in of_one)
