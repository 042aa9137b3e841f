"""Plans: what they choose, what they say, and that they are tight."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.tight")
