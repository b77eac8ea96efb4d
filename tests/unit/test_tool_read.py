"""``read``: text in pieces, folders, pictures, tables, what cannot be shown; and what it costs."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ArgumentError, Denied, ToolError
from nbagent.permission.ruleset import Rule
from nbagent.tools.seen import digest
from tests.toolbox import ALLOW, Toolbox, toolbox

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return toolbox(tmp_path)


async def test_lines_are_numbered(box: Toolbox) -> None:
    box.put("a.py", "one\ntwo\n")
    assert await box.text("read", filePath="a.py") == "     1\tone\n     2\ttwo\n\n[End of file, 2 lines.]"


async def test_a_file_in_pieces_counts_as_read_whole_when_all_were_shown(box: Toolbox) -> None:
    real = box.put("a.py", "".join(f"{n}\n" for n in range(10)))
    said = await box.text("read", filePath="a.py", limit=4)
    assert said.endswith("[Lines 1-4 of 10 lines; there is more: go on with offset 5.]")
    assert box.reads.seen(real) == (digest(real.read_bytes()), False)
    await box.call("read", filePath="a.py", offset=7)
    assert box.reads.seen(real) == (digest(real.read_bytes()), False)
    await box.call("read", filePath="a.py", offset=4, limit=4)
    assert box.reads.seen(real) == (digest(real.read_bytes()), True)


async def test_last_line_without_a_break_and_crlf(box: Toolbox) -> None:
    box.put("a.txt", b"\xef\xbb\xbfone\r\ntwo")
    assert await box.text("read", filePath="a.txt") == "     1\tone\n     2\ttwo\n\n[End of file, 2 lines.]"


async def test_utf16_and_bytes_that_are_no_utf8(box: Toolbox) -> None:
    box.put("u.txt", b"\xff\xfe" + "grün\n".encode("utf-16-le"))
    assert "grün" in await box.text("read", filePath="u.txt")
    box.put("l.txt", "grün\n".encode("latin-1"))
    assert "gr\ufffdn" in await box.text("read", filePath="l.txt")


async def test_long_lines_are_cut_and_the_file_is_not_known_whole(box: Toolbox) -> None:
    real = box.put("long.txt", "é" * 3000 + "\nshort\n" + "z" * 20_000)
    said = await box.text("read", filePath="long.txt")
    assert "é" * 2000 + "… [line cut" in said
    assert "é" * 2001 not in said
    assert "     2\tshort\n" in said
    assert "2 long lines cut at 2,000 characters" in said
    assert box.reads.seen(real) == (digest(real.read_bytes()), False)


async def test_no_more_than_50_kb_a_call(box: Toolbox) -> None:
    box.put("big.txt", "x" * 99 + "\n" + ("y" * 99 + "\n") * 3000)
    said = await box.text("read", filePath="big.txt")
    assert len(said.encode()) <= 50 * 1024
    assert "(50 KB a call); there is more: go on with offset" in said
    following = int(said.rpartition("offset ")[2].partition(".")[0])
    assert f"{following:>6}\ty" in await box.text("read", filePath="big.txt", offset=following, limit=1)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -5}, {"offset": 0}, {"offset": "x"}, {"limit": 1.5}])
async def test_wrong_numbers_are_refused_with_what_to_send(box: Toolbox, wrong: dict[str, object]) -> None:
    box.put("a.py", "one\n")
    with pytest.raises(ArgumentError, match=r"Send read\(filePath: string"):
        await box.call("read", filePath="a.py", **wrong)


async def test_offset_past_the_end(box: Toolbox) -> None:
    box.put("a.py", "one\ntwo")
    with pytest.raises(ToolError, match="past the end: the file has 2 lines"):
        await box.call("read", filePath="a.py", offset=3)
    (box.root / "d").mkdir()
    with pytest.raises(ToolError, match="the folder has 0 entries"):
        await box.call("read", filePath="d", offset=2)


async def test_an_empty_file_is_said_to_be_empty(box: Toolbox) -> None:
    real = box.put("e.txt")
    assert await box.text("read", filePath="e.txt") == "e.txt is empty."
    assert box.reads.seen(real) == (digest(b""), True)
    box.put("mark.txt", b"\xff\xfe")
    assert await box.text("read", filePath="mark.txt") == "mark.txt is empty."


async def test_missing_names_what_is_near_but_nothing_guarded(box: Toolbox) -> None:
    box.put("src/model.py")
    box.put("config.env")
    with pytest.raises(ToolError, match=r"does not exist\. Did you mean src/model.py\?"):
        await box.call("read", filePath="src/modle.py")
    with pytest.raises(ToolError, match=r"Did you mean src/model.py\?"):
        await box.call("read", filePath="lib/model.py")
    with pytest.raises(ToolError) as error:
        await box.call("read", filePath="config.en")
    assert "config.env" not in str(error.value).replace("config.en does", "")


async def test_folder(box: Toolbox) -> None:
    box.put("d/a.py")
    box.put("d/.env", "SECRET=1")
    box.put("d/sub/x")
    (box.root / "d/link").symlink_to("/etc/passwd")
    said = await box.text("read", filePath="d")
    assert said == "d/\n  a.py\n  link@\n  sub/\n\n[3 entries; 1 left out (a rule guards reading them).]"
    assert "a.py" not in await box.text("read", filePath="d", offset=2, limit=1)


async def test_pictures_are_attached_by_content(box: Toolbox) -> None:
    box.put("p.dat", PNG)
    result = await box.call("read", filePath="p.dat")
    assert [(a.mime, base64.b64decode(a.data)) for a in result.attachments] == [("image/png", PNG)]
    box.put("fake.png", b"\0\1\2 not a picture")
    with pytest.raises(ToolError, match=r"binary file.*Its name says image, its content does not"):
        await box.call("read", filePath="fake.png")
    box.put("text.png", "just text\n")
    assert "just text" in await box.text("read", filePath="text.png")
    box.put("huge.png", PNG + b"\0" * (5 * 1024 * 1024))
    with pytest.raises(ToolError, match="at most 5,242,880 can be shown"):
        await box.call("read", filePath="huge.png")


async def test_pdf_as_text(box: Toolbox) -> None:
    pytest.importorskip("pypdf")
    box.put("d.pdf", small_pdf("Hello plan"))
    said = await box.text("read", filePath="d.pdf")
    assert "text of a PDF, 1 page" in said
    assert "     2\tHello plan" in said
    box.put("broken.pdf", b"%PDF-1.4\nnonsense")
    with pytest.raises(ToolError, match="cannot be read"):
        await box.call("read", filePath="broken.pdf")


def small_pdf(text: str) -> bytes:
    stream = f"BT /F1 12 Tf 20 50 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(out)


async def test_a_pdf_is_read_as_far_as_the_answer_goes(box: Toolbox) -> None:
    pypdf = pytest.importorskip("pypdf")
    page = pypdf.PdfReader(io.BytesIO(small_pdf("Hello plan"))).pages[0]
    writer = pypdf.PdfWriter()
    for _ in range(30):
        writer.add_page(page)
    box.put("d.pdf", written(writer))
    first = await box.call("read", filePath="d.pdf", limit=4)
    assert "text of a PDF, 30 pages" in first.output
    assert first.output.endswith("there is more: go on with offset 5.]")
    assert first.metadata["lines"] is None
    last = await box.call("read", filePath="d.pdf", offset=59)
    assert last.output.endswith("    60\tHello plan\n\n[End of file, 60 lines.]")
    with pytest.raises(ToolError, match="the file has 60 lines"):
        await box.call("read", filePath="d.pdf", offset=61)


async def test_a_pdf_that_is_locked_or_made_to_break_is_a_sentence(
    box: Toolbox, capfd: pytest.CaptureFixture[str]
) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(small_pdf("secret"))))
    writer.encrypt("word", algorithm="RC4-128")
    box.put("locked.pdf", written(writer))
    with pytest.raises(ToolError, match="locked with a password"):
        await box.call("read", filePath="locked.pdf")
    whole, chance = small_pdf("Hello"), random.Random(7)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(20):
            data[chance.randrange(9, len(data))] = chance.choice(b"0123456789<>/[]() RZ\0\xff")
        box.put("odd.pdf", bytes(data))
        with contextlib.suppress(ToolError):
            await box.call("read", filePath="odd.pdf")
    assert capfd.readouterr() == ("", "")


def written(writer: Any) -> bytes:
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


async def test_a_table_that_may_have_no_header_says_so(box: Toolbox) -> None:
    box.put("d.csv", "".join(f"{n},name{n}\n" for n in range(9000)))
    assert "it may be data and the table without a header" in await box.text("read", filePath="d.csv")
    box.put("h.csv", "id,name\n" + "".join(f"{n},name{n}\n" for n in range(9000)))
    assert "without a header" not in await box.text("read", filePath="h.csv")


async def test_large_csv_is_described(box: Toolbox) -> None:
    rows = "".join(f'{n},{n / 3:.4f},"name {n}",2024-01-{n % 28 + 1:02},\n' for n in range(5000))
    box.put("t.csv", "id,value,name,day,nothing\n" + rows)
    result = await box.call("read", filePath="t.csv")
    assert "5,000 rows, 5 columns, delimiter ','" in result.output
    for line in ("id: integer", "value: number", "name: text", "day: date", "nothing: empty", "name 4"):
        assert line in result.output
    assert len(result.output) < 1500
    assert result.metadata["rows"] == 5000
    assert "name 9" in await box.text("read", filePath="t.csv", offset=11, limit=1)


async def test_small_csv_is_shown(box: Toolbox) -> None:
    box.put("t.csv", "a;b\n1;2\n")
    assert "     2\t1;2" in await box.text("read", filePath="t.csv")


async def test_large_json_is_described(box: Toolbox) -> None:
    box.put("d.json", json.dumps({"items": [{"id": n, "tags": ["x"]} for n in range(5000)], "total": 5000}))
    said = await box.text("read", filePath="d.json")
    assert "object of 2 keys" in said
    assert "items: list of 5000 (object); the first: object of 2 keys" in said
    assert "total: integer 5000" in said
    box.put("d.jsonl", "".join(json.dumps({"id": n, "t": str(n)}) + "\n" for n in range(5000)))
    assert "5,000 rows, 2 keys" in await box.text("read", filePath="d.jsonl")
    box.put("bad.json", '{"a": ' + "1" * 60_000)
    assert "not valid JSON" in await box.text("read", filePath="bad.json")


async def test_parquet_and_feather_are_described(box: Toolbox) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pa.table({"n": list(range(1000)), "s": [f"row {n}" for n in range(1000)]})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    box.put("t.parquet", buffer.getvalue())
    feather.write_feather(table, str(box.root / "t.feather"))
    for name in ("t.parquet", "t.feather"):
        said = await box.text("read", filePath=name)
        assert "1,000 rows, 2 columns" in said
        assert "n: int64" in said
        assert "0 | row 0" in said
    box.put("broken.parquet", b"PAR1 nonsense")
    with pytest.raises(ToolError, match="cannot be read as parquet"):
        await box.call("read", filePath="broken.parquet")


async def test_binary_notebook_pipe_and_device_are_refused(box: Toolbox) -> None:
    box.put("b.bin", bytes(range(256)))
    with pytest.raises(ToolError, match=r"binary file \(256 bytes\)"):
        await box.call("read", filePath="b.bin")
    box.put("n.ipynb", "{}")
    with pytest.raises(ToolError, match="notebook_read"):
        await box.call("read", filePath="n.ipynb")
    os.mkfifo(box.root / "pipe")
    with pytest.raises(ToolError, match="pipe"):
        await box.call("read", filePath="pipe")
    with pytest.raises(ToolError, match="device"):
        await box.call("read", filePath="/dev/zero")


async def test_guarded_outside_and_linked(box: Toolbox, tmp_path: Path) -> None:
    box.put(".env", "KEY=1")
    box.replies["read"] = "reject"
    with pytest.raises(Denied, match=r"read \.env"):
        await box.call("read", filePath="./src/../.env")
    (tmp_path / "out.txt").write_text("outside\n")
    (box.root / "link.txt").symlink_to(tmp_path / "out.txt")
    declared = box.declare("read", filePath="link.txt")
    assert [need.permission for need in declared.needs] == ["external_directory", "read"]
    assert declared.needs[0].patterns == (str(tmp_path / "out.txt"),)
    assert declared.notes == (f"link.txt is a link: it leads to {tmp_path / 'out.txt'}",)
    box.replies["external_directory"] = "reject"
    with pytest.raises(Denied):
        await box.call("read", filePath="link.txt")


async def test_a_refused_path_tells_nothing_about_itself(box: Toolbox) -> None:
    box.rules = (*ALLOW, Rule("read", "secret/*", "deny", "project"))
    box.put("secret/key.pem", "k")
    for name in ("secret/key.pem", "secret/missing.pem"):
        with pytest.raises(Denied):
            await box.call("read", filePath=name)


async def test_instructions_nearby_come_along(box: Toolbox) -> None:
    box.put("sub/a.py", "x\n")
    box.host.nearby = "Instructions from sub/AGENTS.md: be brief"
    assert (await box.text("read", filePath="sub/a.py")).endswith("be brief")


async def test_a_huge_file_costs_what_is_shown(box: Toolbox) -> None:
    real = box.root / "huge.txt"
    with real.open("wb") as file:
        file.write(b"first line\n" * 100_000)
        file.seek(200 * 1024 * 1024)
        file.write(b"\nlast line\n")
    tracemalloc.start()
    try:
        said = await box.text("read", filePath="huge.txt", limit=50)
        later = await box.text("read", filePath="huge.txt", offset=90_000, limit=3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
    assert "[Lines 1-50 of a file of 209,715,211 bytes; there is more: go on with offset 51.]" in said
    assert " 90000\tfirst line" in later
    seen = box.reads.seen(real)
    assert seen is not None
    assert seen[0].startswith("stat:")
    assert not seen[1]
