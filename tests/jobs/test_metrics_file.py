from tests.jobs.place import Place


def test_x(place: Place) -> None:
    ran = place("run", "--metrics-file", "m.prom")
    print(ran)
    for v in ("audit", "drill", "verify"): print(place(v, "--metrics-file", "m.prom").code)
    print((place.folder / "m.prom").read_text())
    assert 0
