"""Real places behind spellings, and acting on them through a folder handle."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path, PureWindowsPath

import pytest

from nbagent.errors import RootError, ToolError
from nbagent.root import Disk, Handle, Place, Root, windows_pattern, windows_spelling


@pytest.fixture
def root(tmp_path: Path) -> Root:
    project = tmp_path / "w"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.py").write_text("text")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("outside")
    (project / "vendor").symlink_to(tmp_path / "out")
    (project / "alias.py").symlink_to("src/a.py")
    (project / "code").symlink_to("src")
    home = tmp_path / "home"
    home.mkdir()
    return Root(project, home=home)


@pytest.mark.parametrize(
    ("spelled", "pattern"),
    [
        ("src/a.py", "src/a.py"),
        ("./src/a.py", "src/a.py"),
        ("src//a.py", "src/a.py"),
        ("src/./a.py", "src/a.py"),
        ("src/../src/a.py", "src/a.py"),
        ("{root}/src/a.py", "src/a.py"),
        ("{root}/../w/src/a.py", "src/a.py"),
        ("/proc/self/root{root}/src/a.py", "src/a.py"),
        ("alias.py", "src/a.py"),
        ("code/a.py", "src/a.py"),
        ("code/../src/a.py", "src/a.py"),
        ("code/new.py", "src/new.py"),
        ("new/deep/file", "new/deep/file"),
        ("new/../src/a.py", "src/a.py"),
        (".", "."),
        ("src/..", "."),
        ("src/a.py/", "src/a.py"),
        ("vendor/x", "{out}/x"),
        ("vendor/new", "{out}/new"),
        ("vendor/../w/src/a.py", "src/a.py"),
        ("vendor", "{out}"),
        ("../out/x", "{out}/x"),
        ("..", "{top}"),
        ("~/x", "{top}/home/x"),
        ("~", "{top}/home"),
        ("./~", "~"),
        ("a~b", "a~b"),
        ("/", "/"),
        ("/etc/../etc/hosts", "/etc/hosts"),
        ("-x", "-x"),
        ("two words", "two words"),
        ("é", "é"),
        ("line\nbreak", "line\nbreak"),
        ("*", "*"),
    ],
)
def test_every_spelling_comes_to_the_real_place(root: Root, spelled: str, pattern: str) -> None:
    names = {"root": str(root.path), "out": str(root.path.parent / "out"), "top": str(root.path.parent)}
    place = root.locate(spelled.format(**names))
    assert place.pattern == pattern.format(**names)
    assert place.outside == place.pattern.startswith("/")
    assert place.real.is_absolute()


def test_links_are_told(root: Root) -> None:
    assert root.locate("alias.py").shown == "alias.py → src/a.py"
    assert root.locate("src/a.py").shown == "src/a.py"
    assert root.locate("vendor/n.txt").shown == f"vendor/n.txt → {root.path.parent}/out/n.txt"


def test_a_base_folder(root: Root) -> None:
    assert root.locate("a.py", root.path / "src").pattern == "src/a.py"
    assert root.locate("../x", root.path / "src").pattern == "x"


def test_the_root_does_not_move_with_the_working_folder(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert root.locate("src/a.py").real == tmp_path / "w" / "src" / "a.py"


@pytest.mark.parametrize("spelled", ["", "a\0b", "x" * 300, "d/" * 3000, "\udcff", "loop/x", "nodir/\udc80"])
def test_spellings_that_name_nothing(root: Root, spelled: str) -> None:
    (root.path / "loop").symlink_to("loop")
    with pytest.raises(ToolError):
        root.locate(spelled)


def test_a_link_to_a_name_that_is_not_utf8(root: Root) -> None:
    os.symlink(b"bad\xff", os.fsencode(root.path / "odd"))
    with pytest.raises(ToolError, match="UTF-8"):
        root.locate("odd")


def test_descriptors_of_this_process(root: Root) -> None:
    read, write = os.pipe()
    try:
        for folder in ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd"):
            with pytest.raises(ToolError), root.locate(f"{folder}/{read}").open_parent() as handle:
                handle.read_bytes()
    finally:
        os.close(read)
        os.close(write)
    with open(root.path / "src" / "a.py") as file:
        assert root.locate(f"/dev/fd/{file.fileno()}").pattern == "src/a.py"


@pytest.mark.parametrize("explicit", [False, True])
def test_roots_that_are_too_wide(tmp_path: Path, explicit: bool) -> None:
    for path in (Path("/"), tmp_path):
        if explicit:
            assert Root(path, explicit=True, home=tmp_path).path == path
        else:
            with pytest.raises(RootError, match="--root"):
                Root(path, home=tmp_path)


def test_the_home_folder_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    with pytest.raises(RootError):
        Root(tmp_path / "link", home=tmp_path / "home")
    with pytest.raises(RootError):
        Root(tmp_path / "home", home=tmp_path / "link")


@pytest.mark.parametrize(
    ("make", "word"), [("", "does not exist"), ("file", "not a folder"), ("loop", "cannot be used")]
)
def test_roots_that_cannot_be(tmp_path: Path, make: str, word: str) -> None:
    if make == "file":
        (tmp_path / "x").write_text("")
    if make == "loop":
        (tmp_path / "x").symlink_to("x")
    with pytest.raises(RootError, match=word):
        Root(tmp_path / "x")


def handle(root: Root, spelled: str, create: bool = False) -> Handle:
    return root.locate(spelled).open_parent(create)


def test_write_read_and_unlink(root: Root) -> None:
    with handle(root, "new/deep/f.txt", create=True) as one:
        assert not one.exists() and one.links == 0
        one.write_bytes(b"one")
        assert one.read_bytes() == b"one" and one.read_bytes(2) == b"on" and one.links == 1
        with one.open_read() as stream:
            assert stream.read(1) == b"o"
        one.write_bytes(b"two")
        assert os.listdir(root.path / "new" / "deep") == ["f.txt"]
        one.unlink()
        assert not one.exists()
        with pytest.raises(ToolError, match="does not exist"):
            one.read_bytes()
        with pytest.raises(ToolError, match="does not exist"):
            one.unlink()
    with handle(root, "new") as folder:
        assert folder.listdir() == ["deep"]


def test_the_mode_is_kept_and_a_new_file_follows_the_umask(root: Root) -> None:
    script = root.path / "run.sh"
    script.write_text("x")
    script.chmod(0o751)
    with handle(root, "run.sh") as one:
        one.write_bytes(b"y")
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    before = os.umask(0o027)
    try:
        with handle(root, "fresh") as one:
            one.write_bytes(b"y")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root.path / "fresh").stat().st_mode) == 0o640


def test_a_missing_folder_is_an_error_unless_it_is_made(root: Root) -> None:
    with pytest.raises(ToolError, match="does not exist"):
        handle(root, "no/such/x")
    with pytest.raises(ToolError):
        handle(root, "src/a.py/x", create=True)
    with handle(root, "d") as one:
        one.mkdir()
        one.mkdir()
        with pytest.raises(ToolError, match="folder"):
            one.write_bytes(b"x")
    with handle(root, "src/a.py") as one, pytest.raises(ToolError, match="exists"):
        one.mkdir()


def test_odd_files_are_refused_without_blocking(root: Root) -> None:
    os.mkfifo(root.path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root.path / "socket"))
        for name, word in (
            ("fifo", "FIFO"),
            ("socket", "socket"),
            ("src", "folder"),
            ("/dev/null", "device"),
            ("/dev/zero", "device"),
        ):
            with handle(root, name) as one:
                for act in (one.read_bytes, lambda one=one: one.write_bytes(b""), one.unlink, one.open_read):  # type: ignore[misc]
                    with pytest.raises(ToolError, match=word):
                        act()


def test_hard_links_keep_their_text(root: Root) -> None:
    os.link(root.path / "src" / "a.py", root.path.parent / "other")
    with handle(root, "src/a.py") as one:
        assert one.links == 2
        one.write_bytes(b"new")
        assert one.links == 1
    assert (root.path.parent / "other").read_text() == "text"


def swap(path: Path, target: Path) -> None:
    path.rename(path.with_name(path.name + ".moved"))
    path.symlink_to(target)


def test_a_folder_swapped_for_a_link_before_it_is_opened(root: Root) -> None:
    place = root.locate("src/a.py")
    swap(root.path / "src", root.path.parent / "out")
    for create in (False, True):
        with pytest.raises(ToolError):
            place.open_parent(create)
    new = root.locate("fresh/deep/x")
    (root.path / "fresh").symlink_to(root.path.parent / "out")
    with pytest.raises(ToolError):
        new.open_parent(create=True)
    assert sorted(os.listdir(root.path.parent / "out")) == ["x"]


def test_a_folder_swapped_for_a_link_after_it_was_opened(root: Root) -> None:
    with handle(root, "src/x") as one:
        swap(root.path / "src", root.path.parent / "out")
        one.write_bytes(b"inside")
    assert (root.path.parent / "out" / "x").read_text() == "outside"
    assert (root.path / "src.moved" / "x").read_text() == "inside"


@pytest.mark.parametrize("then", ["gone", "file"])
def test_a_link_that_is_none_any_more_when_it_is_read(root: Root, then: str) -> None:
    link = root.path / "link"
    link.symlink_to(root.path.parent / "out")

    class Swapping(Disk):
        def readlink(self, path: str) -> str:
            link.unlink()
            if then == "file":
                link.write_text("x")
            return super().readlink(path)

    place = Root(root.path, explicit=True, disk=Swapping()).locate("link")
    assert (place.real, place.outside) == (link, False)


def test_a_file_swapped_for_a_link(root: Root) -> None:
    outside = root.path.parent / "out" / "x"
    with handle(root, "src/a.py") as one:
        swap(root.path / "src" / "a.py", outside)
        for act in (one.read_bytes, one.open_read, lambda: one.write_bytes(b"w"), one.unlink):
            with pytest.raises(ToolError, match="link"):
                act()
        assert stat.S_ISLNK(one.stat().st_mode)
    assert outside.read_text() == "outside"


def test_a_link_made_where_a_new_file_goes(root: Root) -> None:
    outside = root.path.parent / "out" / "fresh"
    with handle(root, "fresh") as one:
        (root.path / "fresh").symlink_to(outside)
        with pytest.raises(ToolError):
            one.write_bytes(b"w")
    assert not outside.exists()


@pytest.mark.parametrize("way", ["rename", "link", "look"])
def test_a_new_file_takes_no_name_that_is_taken(root: Root, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel that can do it in one act, with hard links, and on a file system that has neither."""

    def no_links(*names: str, **more: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links")

    if way != "rename":
        monkeypatch.setattr("nbagent.root.handle._renameat2", lambda: None)
    taken, outside = root.path / "taken", root.path.parent / "out" / "x"
    (root.path / "hard").hardlink_to(outside)
    if way == "look":
        monkeypatch.setattr("os.link", no_links)
    (root.path / "link").symlink_to(outside)
    taken.write_text("theirs")
    before = sorted(os.listdir(root.path))
    for name in ("taken", "hard", "link"):
        with handle(root, name) as one, pytest.raises(ToolError):
            one.write_bytes(b"mine", new=True)
    assert (taken.read_text(), outside.read_text()) == ("theirs", "outside")
    assert sorted(os.listdir(root.path)) == before
    with handle(root, "free") as one:
        one.write_bytes(b"mine", new=True)
        one.write_bytes(b"mine again")
    assert (root.path / "free").read_bytes() == b"mine again"
    assert (root.path / "free").stat().st_nlink == 1
    assert sorted(os.listdir(root.path)) == sorted([*before, "free"])


def test_the_walk_without_openat2_follows_no_link_either(root: Root, tmp_path: Path) -> None:
    from nbagent.root.handle import walk

    os.close(walk(str(root.path / "src"), False))
    with pytest.raises(OSError):
        walk(str(root.path / "code"), False)
    with pytest.raises(OSError):
        walk(str(root.path / "vendor" / "new"), True)
    assert os.listdir(tmp_path / "out") == ["x"]


def test_permission_and_space_are_said_plainly(root: Root) -> None:
    if os.geteuid() == 0:
        with handle(root, "/dev/full") as one, pytest.raises(ToolError, match="device"):
            one.write_bytes(b"x")
    with handle(root, "/proc/self/nothing") as one, pytest.raises(ToolError, match="nothing"):
        one.write_bytes(b"x")


def test_a_read_only_file_is_not_replaced_behind_its_owners_back(root: Root) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (root.path / "locked").write_text("x")
    (root.path / "locked").chmod(0o444)
    with handle(root, "locked") as one, pytest.raises(ToolError, match="read-only"):
        one.write_bytes(b"y")


class Folding(Disk):
    """A disk that ignores case, laid over one that does not."""

    def __init__(self, top: str) -> None:
        self._top = top

    def _real(self, path: str) -> str:
        if not path.startswith(self._top):
            return path
        found = self._top
        for part in path[len(self._top) :].split("/"):
            if part:
                names = os.listdir(found) if os.path.isdir(found) else []
                found = os.path.join(found, next((n for n in names if n.casefold() == part.casefold()), part))
        return found

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(self._real(path))

    def readlink(self, path: str) -> str:
        return os.readlink(self._real(path))

    def names(self, path: str) -> list[str]:
        return os.listdir(self._real(path))


@pytest.mark.parametrize("spelled", ["src/a.py", "SRC/a.py", "Src/A.PY", "{ROOT}/sRc/a.Py", "CODE/A.py"])
def test_a_disk_that_ignores_case_names_the_file_as_the_disk_does(root: Root, spelled: str) -> None:
    one = Root(root.path, home=root.home, disk=Folding(str(root.path.parent)))
    place = one.locate(spelled.format(ROOT=str(root.path).replace("/w", "/W")))
    assert place.pattern == "src/a.py" and not place.outside


def test_two_files_that_differ_in_case_stay_two(root: Root) -> None:
    (root.path / "SRC").mkdir()
    os.link(root.path / "src" / "a.py", root.path / "src" / "A.PY")
    assert root.locate("SRC").pattern == "SRC"
    assert root.locate("src/A.PY").pattern == "src/A.PY"


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("src\\a.py", "C:/w/src/a.py"),
        ("src/a.py", "C:/w/src/a.py"),
        ("..\\x", "C:/x"),
        ("\\x", "C:/x"),
        ("D:\\y\\z", "D:/y/z"),
        ("d:/y", "d:/y"),
        ("\\\\?\\C:\\w\\a", "C:/w/a"),
        ("\\\\?\\UNC\\server\\share\\a", "//server/share/a"),
        ("\\\\server\\share\\a\\..\\b", "//server/share/b"),
        ("a.txt.", "C:/w/a.txt"),
        ("a.txt ", "C:/w/a.txt"),
        ("dir. \\a", "C:/w/dir/a"),
        ("nul-x", "C:/w/nul-x"),
        ("com10", "C:/w/com10"),
    ],
)
def test_windows_spellings(spelled: str, expected: str) -> None:
    assert windows_spelling(spelled, PureWindowsPath("C:/w")).as_posix() == expected


@pytest.mark.parametrize(
    "spelled",
    [
        "a.txt:stream",
        "a.txt::$DATA",
        "NUL",
        "nul.txt",
        "con",
        "dir\\COM1.log",
        "LPT9",
        "C:x",
        "\\\\.\\C:",
        "\\\\?\\GLOBALROOT\\x",
        "...",
        "aux .",
    ],
)
def test_windows_spellings_that_name_no_file(spelled: str) -> None:
    with pytest.raises(ToolError):
        windows_spelling(spelled, PureWindowsPath("C:/w"))


@pytest.mark.parametrize(
    ("real", "pattern", "outside"),
    [
        ("C:/w/src/a.py", "src/a.py", False),
        ("c:/W/Src/a.py", "Src/a.py", False),
        ("C:/w", ".", False),
        ("C:/wider/x", "C:/wider/x", True),
        ("D:/w/x", "D:/w/x", True),
        ("//server/share/x", "//server/share/x", True),
    ],
)
def test_windows_patterns(real: str, pattern: str, outside: bool) -> None:
    assert windows_pattern(PureWindowsPath(real), PureWindowsPath("C:\\w")) == (pattern, outside)


def test_places_are_values() -> None:
    one = Place(Path("/w/a"), "a", False, "a")
    assert one == Place(Path("/w/a"), "a", False, "a") and hash(one)
