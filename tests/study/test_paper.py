from invint.study.paper import TABLES, paper_values, printed


def test_cells_are_those_printed() -> None:
    assert paper_values("rotmnist/local-ws")[500] == (3.168, None)
    assert paper_values("rotmnist/local-ws")[12000] == (0.688, 0.032)
    assert paper_values("svhn/global-ws")[5000] == (6.45, None)
    assert paper_values("cifar10/monomials")[100] == (69.42, None)
    assert paper_values("stl10/local-ws") == {5000: (10.09, 0.21)}
    assert paper_values("rotmnist/monomials-connectivity-init") == {12000: (0.758, 0.0025)}
    assert paper_values("digits/local-ws") == {}


def test_digits_are_those_printed() -> None:
    assert printed("rotmnist/pooling", 2000) == "1.660"
    assert printed("rotmnist/monomials-connectivity-init", 12000) == "0.758 ± 0.0025"
    assert printed("rotmnist/monomials-connectivity-catalog", 12000) == "0.708 ± 0.010"
    assert printed("stl10/pooling", 5000) == "12.51 ± 0.33"
    assert printed("svhn/pooling", 500) is None


def test_tables_have_the_printed_number_of_cells() -> None:
    counts = {name: sum(len(row.values) for row in table.rows) for name, table in TABLES.items()}
    assert counts == {"table1": 8, "table2": 50, "table3": 25, "table4": 17, "table5": 6}
    for table in TABLES.values():
        for row in table.rows:
            assert set(row.values) <= set(table.sizes)
            assert row.recipe is None or row.recipe.startswith(f"{table.data}/")


def test_what_two_tables_share_is_the_same_in_both() -> None:
    first, second = (
        {row.recipe: row.values for row in TABLES[name].rows if row.recipe}
        for name in ("table1", "table2")
    )
    for recipe in first.keys() & second.keys():
        assert second[recipe][12000] == first[recipe][12000]
    assert first.keys() & second.keys() == {"rotmnist/pooling", "rotmnist/monomials"}


def test_rows_of_ours_have_a_recipe() -> None:
    assert {row.label: row.recipe for row in TABLES["table2"].rows}["MH-SA"] == "rotmnist/attention"
    assert TABLES["table4"].recipes[0] == "cifar10/wrn"
    assert len(TABLES["table5"].recipes) == 4
