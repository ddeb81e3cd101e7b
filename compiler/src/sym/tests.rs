use super::*;

#[test]
fn equal_polynomials_are_one_handle() {
    let (a, b) = (Int::symbol("a", Some(1), None), Int::symbol("b", Some(0), None));
    assert_eq!((a + b) * (a - b), a * a - b * b);
    assert_eq!(a * b + 2 - b * a, Int::new(2));
}

#[test]
fn splitting_an_index_undoes_merging_it() {
    let (n, m) = (Int::symbol("n", Some(1), None), Int::symbol("m", Some(1), None));
    let (i, j) = (Int::index("i", n), Int::index("j", m));
    assert_eq!((i * m + j).div(m), i);
    assert_eq!((i * m + j).rem(m), j);
    let k = Int::index("k", Int::new(12));
    assert_eq!((k * 4 + 3).div(2), k * 2 + 1);
    assert_eq!(k.div(3).div(2), k.div(6));
}

#[test]
fn division_rounds_down_with_the_sign_of_the_divisor() {
    for x in -7..=7 {
        for d in [-3, -2, -1, 1, 2, 3] {
            let q = (f64::from(x) / f64::from(d)).floor() as i64;
            assert_eq!(Int::new(x.into()).div(d).as_const(), Some(q), "{x}/{d}");
            assert_eq!(Int::new(x.into()).rem(d).as_const(), Some(i64::from(x) - q * i64::from(d)), "{x}%{d}");
        }
    }
}

#[test]
fn order_is_proved_from_extents_and_unknown_is_kept() {
    let n = Int::symbol("n", Some(1), None);
    let m = Int::symbol("m", Some(1), None);
    let i = Int::index("i", n);
    assert_eq!(i.lt(n), Some(true));
    assert_eq!((i + 1).lt(n), None);
    assert_eq!(n.le(i), Some(false));
    assert_eq!(n.le(m), None);
    assert_eq!(n.eq_proof(m), None);
    assert_eq!(Int::new(0).lt(n), Some(true));
    assert_eq!((n + 1).eq_proof(n), Some(false));
    assert_eq!(i.min(n), i);
    assert_eq!(n.if_lt(m, 1, 2).bounds(), Bounds { lo: Some(1), hi: Some(2) });
}

#[test]
fn substitution_simplifies_again() {
    let n = Int::symbol("n", Some(1), None);
    let i = Int::index("i", n);
    let v = i.as_var().unwrap();
    let e = i.min(3) + i.div(2);
    assert_eq!(subst(e, &|x| (x == v).then(|| Int::new(5))), Int::new(5));
    assert_eq!(linear_in(i * n + 4, v), Some((n, Int::new(4))));
    assert_eq!(linear_in(i * i, v), None);
}
