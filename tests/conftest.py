"""Every test runs on 8 fake CPU devices, with strict promotion, warnings as errors and checked array shapes."""

import os
from pathlib import Path

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
# One cache for all workers and runs: most of the suite's time would otherwise be compilation.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

from jaxtyping import install_import_hook  # noqa: E402  (the environment above must be set first)

install_import_hook("bert_jax", "beartype.beartype")

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets that lies beside a checkout of ours; tests that need it skip without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real data at {SHARED_DATA}: this test needs it")
    return SHARED_DATA
