"""The package as a whole: what it imports, what it exports, what it never does."""

from __future__ import annotations

import ast
import graphlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import jlgcn
import jlgcn.ops
from jlgcn._optional import require

PACKAGE = Path(jlgcn.__file__).parent
ROOT = Path(__file__).parents[1]

#: A part may import only what stands before it; parts in one line do not know of each other.
LAYERS = (
    (
        *("errors", "_optional", "_files", "_schema", "_saved", "_stats", "_devices", "_memory"),
        *("_processes", "_threads", "_validation"),
    ),
    ("ops",),
    ("graphs",),
    ("nn", "closed_form"),
    ("distributed",),
    ("training",),
    ("io",),
    ("estimator",),
    ("engine",),
    ("report",),
    ("paper",),
    ("cli",),
    ("__main__",),
)
OPTIONAL = ("matplotlib", "faiss", "sklearn", "torch_geometric", "typer")
#: What graphs and networks do without: extras, and what the other parts depend on.
NOT_FOR_NETWORKS = (
    *OPTIONAL,
    *("h5py", "jinja2", "networkx", "pandas", "pyarrow", "safetensors", "tqdm"),
)
#: What functions return: they cost nothing, and their makers have the examples.
ANSWERS = (
    "ClosedFormModel",
    "ClosedFormLayer",
    "Comparison",
    "EdgeExplanation",
    "EdgeList",
    "GraphLevelOutput",
    "JLGCNOutput",
    "NodeExplanation",
    "Pattern",
)
BANNED_IMPORTS = ("pickle", "cPickle", "dill", "shelve", "marshal")
BANNED_CALLS = (
    *("eval", "exec", "torch.load", "yaml.load", "os.system", "os.popen", "numpy.fromregex"),
    *("ssl._create_unverified_context", "ssl._create_default_https_context"),
)

#: Calls that write a file of the name that they are given.
WRITES = re.compile(
    r".*\.(write_text|write_bytes|touch|symlink_to|hardlink_to|rename|tofile|open_memmap|memmap)"
    r"|.*\.(to_csv|to_parquet|to_pickle)|(.*\.)?(save_file|mkstemp|NamedTemporaryFile)"
    r"|os\.(replace|renames|link|symlink|open|fdopen)|shutil\.(copy.*|move)|torch\.save"
)
#: Calls that write to a name or to an open file: only to one that `replacing` opened.
WRITES_TO_FILE = re.compile(
    r"np\.save.*|json\.dump|.*\.(write_graphml|write_table|write_index|savefig)"
)
#: Where something is written without jlgcn._files, and why.
WRITERS = {
    ("paper/figures.py", "figure.savefig"): "to an open file, which write_report has replacing",
    ("ops/cells.py", "faiss.write_index"): "to an open file, which a store has replacing",
}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.module


def module_of(path: Path) -> str:
    """Return the name by which a file is imported."""
    return ".".join(("jlgcn", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def test_imports_point_one_way() -> None:
    place = {part: index for index, layer in enumerate(LAYERS) for part in layer}
    for path, tree in sources():
        part = part_of(path)
        if part == "__init__":
            continue
        for module in imported(tree):
            assert not module.startswith(("evaluation", "tests", "benchmarks")), path
            if module.startswith("jlgcn."):
                other = module.split(".")[1]
                is_private = part.startswith("_") and other.startswith("_")
                is_before = place[other] < place[part] or other == part or is_private
                assert is_before, f"{path} imports {module}"


def test_no_file_imports_itself_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    modules = {module_of(path) for path, _ in sources()}
    for path, tree in sources():
        found = set(imported(tree)) & modules
        for node in ast.walk(tree):  # from a package: the file, where that is what is meant
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names} & modules
        if path != PACKAGE / "__init__.py":  # which imports names when they are asked for
            graph[module_of(path)] = found
    graphlib.TopologicalSorter(graph).prepare()  # raises for a circle, and names it


def test_nothing_dangerous_is_used() -> None:
    for path, tree in sources():
        for module in imported(tree):
            if path.name == "restricted_pickle.py" and module == "pickle":
                continue  # the one reader of raw Planetoid files, which allows nothing but numbers
            assert module.split(".")[0] not in BANNED_IMPORTS, f"{path} imports {module}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in BANNED_CALLS, f"{path}:{node.lineno} calls {name}"
                assert not name.endswith(".extractall"), path
                for keyword in node.keywords:
                    text = f"{keyword.arg}={ast.unparse(keyword.value)}"
                    assert text not in ("allow_pickle=True", "shell=True", "verify=False"), path


def writes_a_file(call: ast.Call) -> bool:
    """Whether a call writes a file, or could, judged by its name and its arguments."""
    name = ast.unparse(call.func)
    last = name.split(".")[-1]
    if last == "replace" and name != "os.replace":
        # Of a path: text has two arguments, dataclasses have keywords.
        return len(call.args) == 1 and not call.keywords
    if last in ("open", "ZipFile") and name != "os.open":
        modes = call.args[0 if name.endswith(".open") else 1 :]
        modes += [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
        return any(
            not isinstance(m, ast.Constant) or set("wax+") & set(str(m.value)) for m in modes
        )
    return bool(WRITES.fullmatch(name) or WRITES_TO_FILE.fullmatch(name))


def calls_within_replacing(tree: ast.Module) -> set[ast.Call]:
    """Calls that are allowed to write, because `replacing` opened the file for them."""
    return {
        call
        for block in ast.walk(tree)
        if isinstance(block, ast.With)
        and any(ast.unparse(item.context_expr).startswith("replacing(") for item in block.items)
        for call in ast.walk(block)
        if isinstance(call, ast.Call) and WRITES_TO_FILE.fullmatch(ast.unparse(call.func))
    }


def test_files_are_written_by_the_one_safe_writer() -> None:
    used = set()
    for path, tree in sources():
        place = path.relative_to(PACKAGE).as_posix()
        if place == "_files.py":
            continue
        allowed = calls_within_replacing(tree)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and call not in allowed and writes_a_file(call):
                key = (place, ast.unparse(call.func))
                assert key in WRITERS, (
                    f"{place}:{call.lineno} writes by {key[1]}; use write_file or replacing of "
                    "jlgcn._files, which follow no link and leave no half"
                )
                used.add(key)
    assert used == set(WRITERS), f"allowed without need: {set(WRITERS) - used}"


@pytest.mark.parametrize(
    "code",
    [
        "path.write_text(text)",
        "open(path, 'w')",
        "open(path, mode)",
        "path.open('ab')",
        "path.open(mode='r+')",
        "os.replace(a, b)",
        "a.replace(b)",
        "np.save(path, x)",
        "with open(p) as file:\n    np.save(file, x)",
        "with replacing(p) as file:\n    q.write_bytes(x)",
    ],
)
def test_the_check_of_writers_sees_what_writes(code: str) -> None:
    tree = ast.parse(code)
    calls = {node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert any(writes_a_file(call) for call in calls - calls_within_replacing(tree))


@pytest.mark.parametrize(
    "code",
    [
        "path.open()",
        "path.open('rb')",
        "text.replace('a', 'b')",
        "replace(found, x=1)",
        "with replacing(p) as file:\n    np.save(file, x)",
    ],
)
def test_the_check_of_writers_lets_others_pass(code: str) -> None:
    tree = ast.parse(code)
    calls = {node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not any(writes_a_file(call) for call in calls - calls_within_replacing(tree))


@pytest.mark.parametrize(("name", "least"), [("lock", 100), ("tools", 50)])
def test_a_lock_has_hashes_for_everything_and_names_no_index(name: str, least: int) -> None:
    text = (ROOT / f"requirements-{name}.txt").read_text()
    lines = [line for line in text.replace("\\\n", "").splitlines() if not line.startswith("#")]
    assert len(lines) > least
    for line in lines:
        assert re.fullmatch(
            r"[a-z0-9.-]+==\S+( ; [^\\]+?)?( +--hash=sha256:[0-9a-f]{64})+", line
        ), line
        assert not line.startswith(("torch==", "nvidia-", "cuda-", "triton"))
    assert "://" not in text


def test_the_lock_is_one_for_all_platforms() -> None:
    text = (ROOT / "requirements-lock.txt").read_text().replace("\\\n", "")
    (numpy,) = re.findall("^numpy==.*", text, re.MULTILINE)
    assert numpy.count("--hash=") > 20  # wheels of Linux, macOS and Windows, and of each Python
    assert re.search("^colorama==.*sys_platform == 'win32'", text, re.MULTILINE)


def test_everything_that_a_workflow_installs_has_a_hash_but_pytorch() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text().replace("\\\n", "")
        installs = re.findall(r"pip\"? install (.*)", text)
        for arguments in installs:
            is_hashed = "--require-hashes -r" in re.sub(" +", " ", arguments)
            is_own = re.fullmatch(
                r"--quiet --no-deps (--no-build-isolation \.|dist/\*\.whl)", arguments
            )
            assert is_hashed or is_own or arguments.endswith("--no-deps torch==2.13.0"), arguments
        for action in re.findall(r"uses: (.*)", text):
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\S+", action), action
    assert 'JLGCN_LOCKED: "1"' in (ROOT / ".github/workflows/tests.yml").read_text()


def test_a_job_that_may_write_runs_no_code_of_the_site() -> None:
    _, deploy = (ROOT / ".github/workflows/docs.yml").read_text().split("\n  deploy:\n")
    assert "contents: write" in deploy
    assert not re.search("python|pip|sphinx|checkout", deploy)


def test_only_the_command_line_prints() -> None:
    for path, tree in sources():
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        prints = any(getattr(node.func, "id", "") == "print" for node in calls)
        assert not prints, path


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.slow
def test_importing_the_package_leaves_optional_packages_alone() -> None:
    loaded = modules_after("import jlgcn.ops, jlgcn.nn; jlgcn.KernelGraph, jlgcn.graphs")
    assert "torch" in loaded
    assert not loaded.intersection(OPTIONAL)


def test_networks_train_where_what_they_do_not_need_is_not_installed() -> None:
    # PyTorch looks for some of these itself, so it comes first.
    modules_after(
        f"import sys, torch; sys.modules.update(dict.fromkeys({NOT_FOR_NETWORKS})); "
        "from jlgcn.nn import JLGCN; JLGCN(4, 3, 2)(torch.randn(9, 4)).logits.sum().backward()"
    )


def test_a_first_fit_imports_nothing_more() -> None:
    loads = "import numpy as np, sys; from jlgcn import JLGCNClassifier; before = set(sys.modules)"
    fits = "JLGCNClassifier().fit(np.eye(12), [0, 1] + 10 * [-1])"
    # torch.broadcast_shapes would bring sympy, for half a second.
    modules_after(f"{loads}; {fits}; new = set(sys.modules) - before; assert not new, new")


def test_no_compiler_is_imported_for_a_product_and_its_gradient() -> None:
    code = (
        "import torch, jlgcn; z = torch.randn(9, 2, requires_grad=True); "
        "(jlgcn.KernelGraph(z) @ torch.ones(9, 1)).sum().backward(); "
        "(jlgcn.gaussian_knn_graph(z, 3) @ torch.ones(9, 1)).sum().backward()"
    )
    assert "torch._dynamo" not in modules_after(code)


def test_the_command_line_starts_without_torch() -> None:
    assert "torch" not in modules_after("import jlgcn.cli")


@pytest.mark.parametrize("module", [jlgcn, jlgcn.ops, jlgcn.graphs, jlgcn.nn])
def test_public_names_exist_and_are_described(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        public = getattr(module, name)
        if name in ("__version__", "PRESETS") or inspect.ismodule(public):
            continue
        text = inspect.getdoc(public) or ""
        assert len(text) > 40, name
        if name not in (*ANSWERS, "ClosedFormOptions", "Graph", "JLGCNOptions", "flash_works"):
            assert "Cost" in text, f"{name} does not say what it costs"
        assert "Example:" in text or name in ANSWERS, f"{name} has no example"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        jlgcn.Grpah  # noqa: B018
    assert dir(jlgcn) == jlgcn.__all__


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r'"jlgcn\[ann\]", or in a clone: pip install "\.\[ann\]"'
    ):
        require("no_such_package", "ann", "a search")


def test_extras_are_those_that_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {
        ast.literal_eval(node.args[1])
        for _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "require"
    }
    assert set(project["optional-dependencies"]) - {"dev", "docs"} == asked
