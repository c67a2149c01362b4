from __future__ import annotations

import bz2
import gzip
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra table")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra table")

from jlgcn.io.parquet_pages import unpacked_bytes  # noqa: E402
from jlgcn.io.table_file import column_names, read_edges, read_table  # noqa: E402

PEOPLE = """name,age,member,kind,note
ann,31,true,red,hello
bob,28.5,false,,
"c, d",40,true,blue,x
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def test_a_csv_file(people: Path) -> None:
    table = read_table(people, id_column="name", label_column="kind", drop=["note"])
    assert table.ids == ["ann", "bob", "c, d"]
    assert table.feature_names == ["age", "member"]
    assert table.x.tolist() == [[31, 1], [28.5, 0], [40, 1]]
    assert table.x.dtype == np.float32
    assert table.labels == ["red", None, "blue"]
    assert repr(table) == "TableFile(3 rows, 2 features, 2 labelled)"


def test_a_parquet_file_is_the_same(people: Path, tmp_path: Path) -> None:
    columns = {"name": ["ann", "bob"], "age": [31.0, None], "kind": ["red", None]}
    path = tmp_path / "people.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    table = read_table(path, id_column="name", label_column="kind")
    assert table.ids == ["ann", "bob"]
    assert table.labels == ["red", None]
    assert np.isnan(table.x[1, 0])


def test_rows_without_ids_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    table = read_table(path)
    assert table.ids == ["0", "1"]
    assert table.labels is None


def test_numbers_as_ids_and_labels_are_text(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,c\n1,2,7\n3,4,\n")
    table = read_table(path, id_column="a", label_column="c")
    assert table.ids == ["1", "3"]
    assert table.labels == ["7", None]


AUSTRIA = "id;größe;note\n007;3,5;schön\n008;4;„gut“\n"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", AUSTRIA),
        ("utf-8-sig", AUSTRIA),
        ("utf-16", AUSTRIA),
        ("cp1252", AUSTRIA),
        ("utf-8", AUSTRIA.replace(",", ".").replace(";", ",")),
        ("utf-8", AUSTRIA.replace(";", "\t")),
        ("utf-8", AUSTRIA.replace(";", "|")),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encoding_and_delimiter_of_a_csv_file_are_found(
    encoding: str, text: str, end: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    table = read_table(path, id_column="id")
    assert table.ids == ["007", "008"]
    assert table.feature_names == ["größe", "note"]
    assert table.texts("note") == ["schön", "„gut“"]


def test_bytes_of_no_encoding_are_latin(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n\x81\xe9,1\n")
    assert read_table(path).texts("a") == ["\x81é"]


def test_a_letter_beyond_the_first_block_tells_the_encoding(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"plain,1\n" * 20_000 + "schön,2\n".encode("cp1252"))
    assert read_table(path).texts("a")[-1] == "schön"


def test_text_may_have_commas_and_lines_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"one, two\nthree",1\n"x ""y""",2\n', encoding="utf-8")
    assert read_table(path).texts("a") == ["one, two\nthree", 'x "y"']


def test_columns_of_a_csv_file_are_numbers_if_all_entries_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d,e,f\n1,0.5,TRUE,007,1,\n2,,false,012,x,\n", encoding="utf-8")
    types = [str(kind) for kind in read_table(path).frame.schema.types]
    assert types == ["int64", "double", "bool", "string", "string", "int64"]


def test_edges_are_matched_by_id(
    people: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "edges.csv"
    path.write_text('from,to,weight\nann,bob,1\nbob,"c, d",0.5\nann,eve,1\n')
    with caplog.at_level(logging.WARNING):
        ids = read_table(people, id_column="name", drop=["note", "kind"]).ids
        edge_index, weight = read_edges(path, ids)
    assert edge_index.tolist() == [[0, 1], [1, 2]]
    assert weight is not None
    assert weight.tolist() == [1, 0.5]
    assert "dropped 1 of 3 edges in edges.csv, whose ids are not in the table, such as 'eve'" in (
        caplog.text
    )


def test_edges_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("from,to\n0,1\n")
    assert read_edges(path, ["0", "1"])[1] is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (PEOPLE, {"id_column": "nam"}, r"no column 'nam' \(asked for as id\); did you mean 'name'"),
        (PEOPLE, {"drop": ["kin"]}, r"no column 'kin' \(asked for as drop\)"),
        (PEOPLE, {"id_column": "name", "label_column": "kind"}, "'note' of t.csv is of string, su"),
        (PEOPLE, {"label_column": "kind"}, "features must be numbers, but column 'name' of t.csv"),
        ("a,b\n1,2\n1,3\n", {"id_column": "a"}, "rows 0 and 1 of t.csv are both '1'"),
        ("a,b\n,2\n1,3\n", {"id_column": "a"}, "row 0 of t.csv has none in column 'a'"),
        ("a,a\n1,2\n", {}, "t.csv has two columns 'a'; rename one of them"),
        ("a\n", {}, "t.csv has a header but no rows"),
        ("a\n1\n", {"id_column": "a"}, "t.csv has no column to learn from"),
        ("a,b\n1,inf\n", {"id_column": "a"}, "column 'b' of row '1' in t.csv is inf"),
        ("a,b\n1\n", {}, "cannot be read as CSV"),
        ("", {}, "cannot be read as CSV"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    text: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        _ = read_table(path, **options).x


def test_what_is_not_there_or_not_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pass the path of a CSV or Parquet file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_table(tmp_path / "bad.parquet")


def test_edges_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("from\na\n")
    with pytest.raises(ValueError, match="must have a column for each end of an edge"):
        read_edges(path, ["a"])
    path.write_text("from,to,weight\na,a,-1\n")
    with pytest.raises(ValueError, match="must be finite and not negative"):
        read_edges(path, ["a"])


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:  # noqa: ANN401
    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def varied_columns(num_rows: int) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    is_missing = chance.random(num_rows) < 0.1
    return {
        "name": [f"row {index}" for index in range(num_rows)],
        "wide": chance.normal(size=num_rows),
        "narrow": chance.normal(size=num_rows).astype(np.float32),
        "whole": pyarrow.array(chance.integers(0, 9, num_rows), mask=is_missing),
        "flag": chance.random(num_rows) < 0.5,
        "kind": pyarrow.array(chance.choice(["red", "blue", ""], num_rows), mask=is_missing),
    }


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "column_encoding": {"whole": "DELTA_BINARY_PACKED"}},
        # Of many pages, 100 rows each: a page is closed after the batch that fills it.
        {
            "row_group_size": 300,
            "write_page_checksum": True,
            "data_page_size": 1,
            "write_batch_size": 100,
        },
    ],
)
def test_a_parquet_file_is_read_the_same_however_it_is_packed(
    version: str, compression: str, options: dict[str, Any], tmp_path: Path
) -> None:
    columns = varied_columns(1000)
    path = write_parquet(
        tmp_path / "t.parquet",
        columns,
        data_page_version=version,
        compression=compression,
        **options,
    )
    table = read_table(path, id_column="name", label_column="kind")
    assert table.ids == columns["name"]
    assert table.labels == [kind or None for kind in columns["kind"].to_pylist()]
    whole = [np.nan if value is None else value for value in columns["whole"].to_pylist()]
    expected = np.stack([columns["wide"], columns["narrow"], whole, columns["flag"]], axis=1)
    np.testing.assert_array_equal(table.x, expected.astype(np.float32))
    found = parquet.read_metadata(path)
    groups = [found.row_group(index) for index in range(found.num_row_groups)]
    chunks = {index: [group.column(index) for group in groups] for index in range(6)}
    for index, unpacked in unpacked_bytes(path, chunks).items():
        in_footer = sum(chunk.total_uncompressed_size for chunk in chunks[index])
        assert 0 < in_footer - unpacked < 500 * len(groups)  # the headers of pages


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    columns = {"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5], "weight": [1.0, 2.0]}
    path = write_parquet(tmp_path / "t.parquet", columns, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[parquet.read_metadata(path).row_group(0).column(1).data_page_offset] = 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_table(path, label_column="b")
    assert column_names(path) == ["a", "b", "c", "weight"]
    assert read_table(path, drop=["b"]).x.tolist() == [[1, 0.5, 1], [2, 1.5, 2]]
    edges = write_parquet(tmp_path / "e.parquet", {"from": [1], "to": [2], "note": [[1, 2]]})
    assert read_edges(edges, ["1", "2"])[0].tolist() == [[0], [1]]
    csv = tmp_path / "t.csv"
    csv.write_bytes(b"a,b,weight\n1,2,x\n")
    assert read_table(csv, drop=["weight"]).feature_names == ["a", "b"]


def test_the_header_of_a_csv_file_is_read_without_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 10**6 + "3\n")
    assert column_names(path) == ["a", "b"]
    with pytest.raises(ValueError, match="cannot be read as CSV"):
        read_table(path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst", "lz4"])
def test_a_compressed_csv_file_is_the_same(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"people.csv.{ending}"
    with pyarrow.output_stream(path) as stream:
        stream.write(PEOPLE.encode())
    table = read_table(path, id_column="name", label_column="kind", drop=["note"])
    assert table.x.tolist() == [[31, 1], [28.5, 0], [40, 1]]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="cannot be read as CSV"):
        read_table(path)


@pytest.mark.parametrize(
    ("ending", "pack", "block"),
    [
        ("gz", gzip.compress, b"1,2\n" * 2**20),
        ("bz2", bz2.compress, b"1,2\n" + b"0" * 2**20),
    ],
)
def test_a_csv_file_that_unpacks_to_very_much_is_refused(
    ending: str, pack: Callable[[bytes], bytes], block: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"bomb.csv.{ending}"
    path.write_bytes(pack(b"a,b\n1,2\n") + pack(block) * 100)
    with pytest.raises(
        ValueError, match=r"bomb\.csv.* bytes and says that it holds.*unpack it fir"
    ):
        read_table(path, drop=["b"])


def test_a_long_text_of_many_rows_is_there_once(tmp_path: Path) -> None:
    text = "x" * 10**6
    packed = pyarrow.DictionaryArray.from_arrays([0] * 300, [text])
    columns = {"a": range(300), "b": [0.5] * 300, "long": packed}
    path = write_parquet(tmp_path / "t.parquet", columns, store_schema=False)
    labels = read_table(path, id_column="a", label_column="long").labels
    assert labels is not None
    assert labels[0] == text
    assert all(label is labels[0] for label in labels)
    for id_column, message in (
        ("a", r"'long' of t\.parquet is of string, such as 'x{40}';"),
        ("long", r"rows 0 and 1 of t\.parquet are both 'x{40}';"),
    ):
        with pytest.raises(ValueError, match=message):
            _ = read_table(path, id_column=id_column).x


def test_a_parquet_file_of_very_many_rows_is_refused() -> None:
    path = Path(__file__).parents[1] / "fuzz/corpus/many_rows.parquet"
    assert column_names(path) == ["a"]
    with pytest.raises(
        ValueError, match=r"has 841 bytes and says that it holds 81,600,\d\d\d,\d\d\d"
    ):
        read_table(path)


def test_a_footer_that_says_less_than_the_pages_do_is_not_believed(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "t.parquet",
        {"a": [1], "b": ["x" * 3 * 10**7]},
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
    )
    said = parquet.read_metadata(path).row_group(0).column(1).total_uncompressed_size
    content = path.read_bytes()
    number = varint(2 * said)
    assert number in content  # once or, as older versions write it, behind the column, too
    path.write_bytes(content.replace(number, b"\x80" * (len(number) - 1) + b"\0"))
    assert parquet.read_metadata(path).row_group(0).column(1).total_uncompressed_size == 0
    with pytest.raises(
        ValueError, match=r"t\.parquet has [\d,]+ bytes and says that it holds 300,"
    ):
        read_table(path, id_column="b")


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number % 128 + 128)
        number //= 128
    return bytes([*found, number])


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ([[1, 2], [3]], {}, r"of numbers or text, but column 'b' of t\.parquet is of list<"),
        ([{"c": 1}, {"c": 2}], {}, r"'b' of t\.parquet is of struct<.*leave it out"),
        (
            ["x", "y"],
            {"use_dictionary": False, "column_encoding": {"b": "DELTA_BYTE_ARRAY"}},
            r"cannot be read as Parquet \(column 'b' has the encoding DELTA_BYTE_ARRAY",
        ),
        (
            ["x", "y"],
            {"use_dictionary": False, "column_encoding": {"b": "DELTA_LENGTH_BYTE_ARRAY"}},
            "use PLAIN or dictionary encoding",
        ),
    ],
)
def test_parquet_columns_whose_size_cannot_be_known_are_refused(
    column: list[Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a": [1, 2], "b": column}, **options)
    with pytest.raises(ValueError, match=message):
        read_table(path, label_column="b")
    assert len(read_table(path, drop=["b"]).ids) == 2


def test_decimals_are_numbers(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a": [Decimal("1.5"), Decimal("-2.25")]})
    assert read_table(path).x.tolist() == [[1.5], [-2.25]]


def test_columns_are_told_apart_by_their_whole_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a.b": [1, 2], "a": [3, 4], "a.c": ["x", "y"]})
    assert read_table(path, drop=["a.b", "a.c"]).x.tolist() == [[3], [4]]
    assert read_table(path, drop=["a", "a.c"]).x.tolist() == [[1], [2]]


def test_pages_that_overlap_or_are_cut_off_are_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a": list(range(1000))}, use_dictionary=False)
    chunk = parquet.read_metadata(path).row_group(0).column(0)
    with pytest.raises(ValueError, match=r"its columns have [\d,]+ bytes, more than the file"):
        unpacked_bytes(path, {0: [chunk] * 3})
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\x19" + content[5:])  # a list instead of a number
    with pytest.raises(ValueError, match=r"as Parquet \(a page header has a field of kind 9\)"):
        read_table(path)


def test_the_delimiter_is_found_where_records_have_lines_and_one_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f'{k};"one, two\nand, three"' for k in range(60)]
    path.write_text("\n".join(["id;text", *lines]))
    assert column_names(path) == ["id", "text"]
    assert read_table(path, id_column="id").texts("text")[59] == "one, two\nand, three"
    path.write_text("\n".join(["id;text", *(f"{k};a" for k in range(30)), "31;b;c"]))
    with pytest.raises(ValueError, match=r"Row #32: Expected 2 .* as many cells as the header"):
        read_table(path)


def test_spaces_around_labels_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,kind\n1,red\n2, red \n3,  \n4,\n")
    assert read_table(path, label_column="kind").labels == ["red", "red", None, None]


def test_the_nearest_name_is_proposed_and_sheets_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("size,kind\n1,a\n")
    with pytest.raises(ValueError, match=r"no column 'knd' .asked for as label.; did you mean 'ki"):
        read_table(path, label_column="knd")
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(ValueError, match="save the sheet as CSV"):
        read_table(tmp_path / "t.xlsx")
