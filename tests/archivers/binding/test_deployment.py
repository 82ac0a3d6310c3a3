"""Which databases are taken for one, and which for two."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bucketwise.archivers.markers import Deployment

HOSTS = ("db1:27017", "db2:27017", "db3:27017", "db4:27017")
OURS = Deployment("market", "rs0", HOSTS[:3], "a1", {"bucketwise_receipts": "u1", "bucketwise_runs": "u2"})
deployments = st.builds(
    Deployment,
    st.sampled_from(["market", "plant"]),
    st.sampled_from([None, "rs0", "rs1"]),
    st.lists(st.sampled_from(HOSTS), unique=True).map(tuple),
    st.sampled_from([None, "a1", "b2"]),
    st.dictionaries(
        st.sampled_from(["bucketwise_receipts", "bucketwise_runs"]), st.sampled_from(["u1", "u2"])
    ),
)


@given(deployments, deployments)
def test_a_record_is_read_as_it_was_written_and_either_way_the_answer_is_the_same(
    one: Deployment, two: Deployment
) -> None:
    assert Deployment.of(one.body) == one
    assert one.difference(one) is None
    assert (one.difference(two) is None) == (two.difference(one) is None)


@given(deployments, deployments)
def test_what_is_recorded_anew_is_the_same_deployment_and_forgets_nothing(
    stored: Deployment, present: Deployment
) -> None:
    if stored.difference(present) is None:
        renewed = stored.renewed(present)
        assert renewed.difference(present) is None and stored.difference(renewed) is None
        assert renewed.id == (present.id or stored.id)
        assert renewed.set == (present.set or (None if present.id else stored.set))
        assert renewed.renewed(present) == renewed


@given(st.permutations(HOSTS))
def test_all_members_may_be_replaced_one_after_another(order: list[str]) -> None:
    known = replace(OURS, hosts=tuple(order[:2]))
    for at in range(1, 3):
        present = replace(OURS, hosts=tuple(order[at : at + 2]))
        assert known.difference(present) is None
        known = known.renewed(present)
    assert "and on none of" in (replace(OURS, hosts=tuple(order[:2])).difference(known) or "")


def test_each_difference_has_its_words() -> None:
    for other, words in (
        (replace(OURS, database="plant"), "is called plant"),
        (replace(OURS, id="b2"), "has the id b2, and not a1"),
        (replace(OURS, hosts=("db9:27017",)), "runs on db9:27017"),
        (replace(OURS, collections={"bucketwise_receipts": "u9"}), "it was restored from a dump"),
        (replace(OURS, id=None, set="rs1"), "the replica set is rs1"),
    ):
        assert words in (OURS.difference(other) or ""), other
    for same in (
        replace(OURS, id=None),
        replace(OURS, hosts=()),
        replace(OURS, hosts=HOSTS[2:]),
        replace(OURS, collections={}),
        replace(OURS, set=None, id="c3"),  # the set became a shard of a cluster, which has an id of its own
    ):
        assert OURS.difference(same) is None, same
