//! The rule table against a linear search, and the promise of the mask.

mod common;

use common::{Rule, blend, extra, mask, noise, packet};
use proptest::prelude::*;
use tollgate_classifier::{ExtraKey, ExtraMatch, RuleTable};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

#[derive(Clone, Debug)]
enum Step {
    Insert(Rule),
    RemoveOld(prop::sample::Index),
    RemoveAny(Rule),
}

fn rule(masks: Vec<FlowMask>) -> impl Strategy<Value = Rule> {
    let extra = (extra(), prop_oneof![Just(ExtraKey::ZERO), extra()]);
    let parts = (0..6u16, packet(), prop::sample::select(masks), extra);
    parts.prop_map(|(priority, key, mask, (extra, extra_mask))| {
        let extra = ExtraMatch::new(&extra, extra_mask);
        Rule::new(0, priority, &FlowMatch::new(&key, mask), &extra)
    })
}

/// Steps with rules of few masks, so that several rules share a subtable.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(mask(), 1..5).prop_flat_map(|masks| {
        let rule = move || rule(masks.clone());
        let step = prop_oneof![
            12 => rule().prop_map(Step::Insert),
            3 => any::<prop::sample::Index>().prop_map(Step::RemoveOld),
            1 => rule().prop_map(Step::RemoveAny),
        ];
        prop::collection::vec(step, 1..60)
    })
}

/// Takes the steps on the table and on the list, comparing what each says on the way.
fn run(steps: &[Step]) -> (RuleTable<Rule>, Vec<Rule>) {
    let (mut table, mut list) = (RuleTable::new(), Vec::<Rule>::new());
    for (id, step) in steps.iter().enumerate() {
        match step {
            Step::Insert(rule) => {
                let rule = Rule { id, ..rule.clone() };
                let old = list.iter().position(|other| other.is_same_place(&rule));
                let old = old.map(|old| list.swap_remove(old));
                list.push(rule.clone());
                assert_eq!(table.insert(rule), old);
            }
            Step::RemoveOld(index) if !list.is_empty() => {
                let rule = list.swap_remove(index.index(list.len()));
                assert_eq!(table.remove(rule.priority, &rule.matcher), Some(rule));
            }
            Step::RemoveOld(_) => {}
            Step::RemoveAny(rule) => {
                let old = list.iter().position(|other| other.is_same_place(rule));
                let old = old.map(|old| list.swap_remove(old));
                assert_eq!(table.remove(rule.priority, &rule.matcher), old);
            }
        }
        assert_eq!(table.len(), list.len());
    }
    (table, list)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lookup_finds_what_a_linear_search_finds(
        steps in steps(),
        packets in prop::collection::vec((packet(), extra()), 30),
    ) {
        let (table, list) = run(&steps);
        for (key, extra) in packets {
            let found = table.lookup(&key, &extra, &mut FlowMask::default());
            let matching = list.iter().filter(|rule| rule.matches(&key, &extra));
            let best = matching.map(|rule| rule.priority).max();
            prop_assert_eq!(found.map(|rule| rule.priority), best);
            if let Some(found) = found {
                prop_assert!(list.contains(found) && found.matches(&key, &extra));
            }
        }
    }

    #[test]
    fn bits_that_were_not_looked_at_do_not_matter(
        steps in steps(),
        key in packet(),
        extra in extra(),
        others in prop::collection::vec(packet(), 20),
        noise in prop::collection::vec(noise(), 5),
    ) {
        let (table, _) = run(&steps);
        let mut looked_at = FlowMask::default();
        let found = table.lookup(&key, &extra, &mut looked_at);
        for other in others.iter().chain(&noise) {
            let similar = blend(&key, other, &looked_at);
            let again = table.lookup(&similar, &extra, &mut FlowMask::default());
            prop_assert_eq!(again, found);
        }
    }

    #[test]
    fn iteration_gives_every_rule_once_as_it_was_put_in(
        steps in steps(),
    ) {
        let (table, mut list) = run(&steps);
        let mut rules: Vec<_> = table
            .iter()
            .inspect(|rule| assert_eq!(table.get(rule.priority, &rule.matcher), Some(*rule)))
            .cloned()
            .collect();
        rules.sort_by_key(|rule| rule.id);
        list.sort_by_key(|rule| rule.id);
        prop_assert_eq!(rules, list);
    }

    #[test]
    fn looking_adds_to_the_mask_and_takes_nothing_away(
        steps in steps(),
        key in packet(),
        before in mask(),
    ) {
        let (table, _) = run(&steps);
        let mut looked_at = before;
        table.lookup(&key, &ExtraKey::default(), &mut looked_at);
        prop_assert!(looked_at.contains(&before));
    }
}

fn tcp_to(in_port: u32, host: u8, port: u16) -> FlowKey {
    let mut key =
        FlowKey { in_port, eth_type: 0x800, ip_proto: 6, l4_dst: port, ..FlowKey::default() };
    key.ip_dst[0] = host;
    key
}

fn mask_of(set: impl Fn(&mut FlowKey)) -> FlowMask {
    let mut mask = FlowMask::default();
    set(&mut mask.0);
    mask
}

#[test]
fn rules_that_cannot_win_are_not_looked_at() {
    let mut table = RuleTable::new();
    let port_only = mask_of(|mask| mask.in_port = u32::MAX);
    let everything = mask_of(|mask| {
        (mask.in_port, mask.eth_type, mask.ip_proto) = (u32::MAX, u16::MAX, u8::MAX);
        mask.l4_dst = u16::MAX;
    });
    let key = tcp_to(1, 9, 80);
    let high = Rule::new(1, 10, &FlowMatch::new(&key, port_only), &ExtraMatch::ANY);
    table.insert(high.clone());
    table.insert(Rule::new(2, 10, &FlowMatch::new(&key, everything), &ExtraMatch::ANY));
    table.insert(Rule::new(3, 5, &FlowMatch::ANY, &ExtraMatch::ANY));
    let mut looked_at = FlowMask::default();
    assert_eq!(table.lookup(&key, &ExtraKey::default(), &mut looked_at), Some(&high));
    assert_eq!(looked_at, port_only);
}

#[test]
fn a_rule_of_another_port_kind_or_pipeline_costs_only_the_bits_that_tell_so() {
    let port_only = mask_of(|mask| mask.in_port = u32::MAX);
    let kind = mask_of(|mask| {
        (mask.in_port, mask.eth_type, mask.ip_proto) = (u32::MAX, u16::MAX, u8::MAX);
    });
    let whole = kind
        | mask_of(|mask| {
            mask.ip_dst = [0xff; 16];
            mask.l4_dst = u16::MAX;
        });
    let in_pipeline = |metadata| ExtraKey { metadata, ..ExtraKey::ZERO };
    let of_pipeline = |metadata| ExtraMatch::new(&in_pipeline(metadata), in_pipeline(0xff));
    let seen = |packet: &FlowKey, metadata| {
        let mut table = RuleTable::new();
        let extra = of_pipeline(7);
        table.insert(Rule::new(0, 10, &FlowMatch::new(&tcp_to(1, 9, 80), whole), &extra));
        // Rules that were there leave nothing behind.
        let gone = [
            Rule::new(1, 10, &FlowMatch::new(packet, whole), &extra),
            Rule::new(2, 20, &FlowMatch::new(&tcp_to(2, 8, 80), whole), &of_pipeline(8)),
        ];
        for rule in &gone {
            table.insert(rule.clone());
        }
        for rule in &gone {
            assert_eq!(table.remove(rule.priority, &rule.matcher).as_ref(), Some(rule));
        }
        let mut looked_at = FlowMask::default();
        assert_eq!(table.lookup(packet, &in_pipeline(metadata), &mut looked_at), None);
        looked_at
    };
    assert_eq!(seen(&tcp_to(1, 9, 80), 8), FlowMask::default());
    assert_eq!(seen(&tcp_to(2, 9, 80), 7), port_only);
    assert_eq!(seen(&FlowKey { ip_proto: 17, ..tcp_to(1, 9, 80) }, 7), kind);
    let address = mask_of(|mask| (mask.eth_type, mask.ip_dst[0]) = (u16::MAX, 0b1110_0000));
    assert_eq!(seen(&tcp_to(1, 0b0010_1001, 80), 7), address);
    let ports = |bits| {
        mask_of(|mask| {
            (mask.eth_type, mask.ip_proto, mask.l4_dst) = (u16::MAX, u8::MAX, bits);
        })
    };
    assert_eq!(seen(&tcp_to(1, 9, 0x8050), 7), ports(0x8000));
    assert_eq!(seen(&tcp_to(1, 9, 81), 7), ports(0xffff));
}
