use super::*;

fn tenant(reason: Reason, whom: &[&str]) -> Tenant {
    let waits_for = WaitsFor {
        reason,
        since_ms: Some(1500.0),
        whom: whom.iter().map(|name| (*name).to_owned()).collect(),
        bytes: 3 << 30,
        bytes_per_second: Some(50_000_000_000),
        ..WaitsFor::default()
    };
    Tenant { name: "train".to_owned(), class: "batch".to_owned(), waits_for, ..Tenant::default() }
}

#[test]
fn every_reason_has_sentences_of_its_own_that_name_the_program_and_say_what_helps() {
    let mut all = std::collections::BTreeSet::new();
    for reason in Reason::ALL {
        let said = of_tenant(&tenant(reason.clone(), &["serve"]));
        assert!(said.starts_with("train ") && said.contains("1.50 s"), "{said}");
        assert!(
            said.lines().count() == 2 || !reason.is_a_wait() || matches!(reason, Reason::Join | Reason::Room),
            "{said}"
        );
        assert!(all.insert(said));
    }
}

#[test]
fn whoever_waits_for_a_turn_hears_behind_whom_and_until_when() {
    let mut one = tenant(Reason::Turn, &["serve", "tune"]);
    one.waits_for.within_ms = Some(80.0);
    one.waits_for.bound = Some(Bound::Quantum);
    let said = of_tenant(&one);
    assert!(said.contains("behind serve and tune. It is next, in 80.0 ms at the latest, when the quantum"), "{said}");
    assert!(said.contains("`baton suspend serve` and `baton suspend tune`"), "{said}");
    one.waits_for.bound = Some(Bound::MaxWait);
    assert!(of_tenant(&one).contains("(--max-wait)"));
}

#[test]
fn memory_that_comes_is_said_with_its_speed_and_how_long_that_takes() {
    let said = of_tenant(&tenant(Reason::OwnMemory, &[]));
    assert!(said.contains("3 GiB are still to come, at 50.0 GB/s about 64.4 ms more"), "{said}");
}

#[test]
fn one_that_waits_to_join_hears_its_place() {
    let newcomer = |name: &str| Newcomer { name: name.to_owned(), waited_seconds: 4.0, ..Newcomer::default() };
    let status = Status { max_tenants: 2, newcomers: ["a", "b", "c"].map(newcomer).to_vec(), ..Status::default() };
    assert!(sentences(&status, "a").is_some_and(|said| said.contains("the next to join")));
    assert!(sentences(&status, "c").is_some_and(|said| said.contains("2 others join before it")));
    assert_eq!(sentences(&status, "d"), None);
}

#[test]
fn the_words_of_reasons_are_those_of_the_schema() {
    let words: Vec<String> = Reason::ALL.iter().map(|reason| serde_json::to_string(reason).expect("a word")).collect();
    assert!(words.contains(&"\"too_large_together\"".to_owned()) && words.contains(&"\"idle\"".to_owned()));
}
