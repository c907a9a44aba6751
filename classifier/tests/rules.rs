//! The rule table against a linear search, and the promise of the mask.

mod common;

use common::{Rule, blend, extra, mask, noise, packet};
use std::collections::HashSet;

use proptest::prelude::*;
use tollgate_classifier::{ExtraKey, ExtraMatch, RuleTable};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, MacAddr};

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

/// Layer by layer, as Open vSwitch stages its lookups.
fn layers() -> [FlowMask; 3] {
    let every_mac = MacAddr([0xff; 6]);
    let mut bits = FlowKey { in_port: u32::MAX, ..FlowKey::default() };
    let ingress = FlowMask(bits);
    (bits.eth_src, bits.eth_dst) = (every_mac, every_mac);
    (bits.eth_type, bits.vlan_tci, bits.vlan_tpid) = (u16::MAX, u16::MAX, u16::MAX);
    let layer2 = FlowMask(bits);
    let layer4 = FlowMask(FlowKey {
        l4_src: u16::MAX,
        l4_dst: u16::MAX,
        tcp_flags: u16::MAX,
        ..FlowKey::default()
    });
    let mut layer3 = FlowMask(FlowKey::default());
    let rest = layer3.0.words_mut().iter_mut().zip(layer4.words());
    rest.for_each(|(word, layer4)| *word = !layer4);
    [ingress, layer2, layer3]
}

/// What a lookup has to look at that searches the masks one by one, from the highest priority in
/// them on, each layer by layer until no rule is left.
fn looked_at_in_layers(list: &[Rule], key: &FlowKey, extra: &ExtraKey) -> FlowMask {
    let masks: HashSet<_> = list
        .iter()
        .map(|rule| (*rule.matcher.flow().mask(), *rule.matcher.extra().mask()))
        .collect();
    let best = list.iter().filter(|rule| rule.matches(key, extra)).map(|rule| rule.priority).max();
    let mut looked_at = FlowMask::default();
    for (mask, extra_mask) in masks {
        let rules: Vec<_> = list
            .iter()
            .filter(|rule| {
                let (flow, extra) = (rule.matcher.flow(), rule.matcher.extra());
                (flow.mask(), extra.mask()) == (&mask, &extra_mask)
            })
            .collect();
        let max_priority = rules.iter().map(|rule| rule.priority).max();
        // Of equals, which is searched first is not said.
        if max_priority < best {
            continue;
        }
        let agree = |bits: FlowMask| {
            rules.iter().any(|rule| {
                rule.matcher.extra().matches(extra)
                    && FlowMatch::new(rule.matcher.flow().key(), bits).matches(key)
            })
        };
        let layers = layers().map(|layer| layer & mask);
        looked_at |= layers.into_iter().find(|layer| !agree(*layer)).unwrap_or(mask);
    }
    looked_at
}

fn bits(mask: &FlowMask) -> u32 {
    mask.words().iter().map(|word| word.count_ones()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_looked_at_that_stages_would_not_look_at(
        steps in steps(),
        packets in prop::collection::vec((packet(), extra()), 10),
    ) {
        let (table, list) = run(&steps);
        for (key, extra) in packets {
            let mut looked_at = FlowMask::default();
            table.lookup(&key, &extra, &mut looked_at);
            let allowed = looked_at_in_layers(&list, &key, &extra);
            prop_assert!(allowed.contains(&looked_at), "{looked_at:?} beyond {allowed:?}");
        }
    }
}

#[test]
fn a_set_of_networks_and_ports_is_told_apart_by_far_fewer_bits_than_it_has() {
    let address = mask_of(|mask| mask.eth_type = u16::MAX);
    let mut table = RuleTable::new();
    let mut list = Vec::new();
    for n in 0..100u8 {
        let prefix = |bytes| address | mask_of(|mask| mask.ip_dst[..bytes].fill(0xff));
        let ports = prefix(4) | mask_of(|mask| (mask.ip_proto, mask.l4_dst) = (u8::MAX, 0xfff0));
        for (priority, mask) in [(30, ports), (20, prefix(3)), (10, prefix(2))] {
            let mut key = tcp_to(1, 10, u16::from(n) << 8);
            key.ip_dst[1..4].copy_from_slice(&[n, n, n]);
            let rule = Rule::new(0, priority, &FlowMatch::new(&key, mask), &ExtraMatch::ANY);
            list.push(rule.clone());
            table.insert(rule);
        }
    }
    let (mut ours, mut staged) = (0, 0);
    for n in 0..200u8 {
        let mut key = tcp_to(1, 10 + n % 2, 0x4000);
        key.ip_dst[1..4].copy_from_slice(&[n, n ^ 1, n]);
        let mut looked_at = FlowMask::default();
        table.lookup(&key, &ExtraKey::ZERO, &mut looked_at);
        ours += bits(&looked_at);
        staged += bits(&looked_at_in_layers(&list, &key, &ExtraKey::ZERO));
    }
    assert!(3 * ours < 2 * staged, "{ours} bits, {staged} in stages");
}

/// Rules for single hosts of a network, each with its ports.
#[test]
fn exact_destinations_in_one_subnet_do_not_pull_ports_into_the_mask() {
    let mut table = RuleTable::new();
    let mask = mask_of(|mask| {
        (mask.eth_type, mask.ip_proto, mask.l4_dst) = (u16::MAX, u8::MAX, u16::MAX);
        mask.ip_dst[..4].fill(0xff);
    });
    let to_host = |host, port| {
        let mut key = tcp_to(1, 10, port);
        key.ip_dst[3] = host;
        key
    };
    for host in 0..64 {
        let matcher = FlowMatch::new(&to_host(host, 80), mask);
        table.insert(Rule::new(0, 10, &matcher, &ExtraMatch::ANY));
    }
    let network = mask_of(|mask| (mask.eth_type, mask.ip_dst[0]) = (u16::MAX, 0xff));
    let rest = Rule::new(1, 1, &FlowMatch::new(&to_host(0, 0), network), &ExtraMatch::ANY);
    table.insert(rest.clone());
    for port in [80, 443, 0x8050] {
        let mut looked_at = FlowMask::default();
        let found = table.lookup(&to_host(200, port), &ExtraKey::ZERO, &mut looked_at);
        assert_eq!(found, Some(&rest));
        // The prefix that the host shares with the 64, and one bit.
        assert_eq!(
            looked_at,
            network | mask_of(|mask| mask.ip_dst[1..4].copy_from_slice(&[0xff, 0xff, 0x80]))
        );
    }
    // A host with a rule: its ports count, but no more of them than tell 80 from the rest.
    let mut looked_at = FlowMask::default();
    assert_eq!(table.lookup(&to_host(5, 0x8050), &ExtraKey::ZERO, &mut looked_at), Some(&rest));
    assert_eq!((looked_at.0.l4_dst, looked_at.0.ip_dst[3]), (0x8000, 0));
}

/// What one subtable needs anyway decides what the others are told by.
#[test]
fn bits_that_are_known_are_preferred() {
    let mut table = RuleTable::new();
    let tcp = mask_of(|mask| (mask.eth_type, mask.ip_proto) = (u16::MAX, u8::MAX));
    let host = tcp | mask_of(|mask| mask.ip_dst[..4].fill(0xff));
    table.insert(Rule::new(1, 20, &FlowMatch::new(&tcp_to(1, 9, 0), host), &ExtraMatch::ANY));
    let udp = FlowKey { ip_proto: 17, ..tcp_to(1, 128, 0) };
    let looked_at_beyond = |table: &RuleTable<Rule>, known: FlowMask| {
        let mut looked_at = known;
        table.lookup(&udp, &ExtraKey::ZERO, &mut looked_at);
        looked_at
    };
    // One bit of the address tells; but if the protocol is known, nothing has to.
    let one_bit = mask_of(|mask| (mask.eth_type, mask.ip_dst[0]) = (u16::MAX, 0x80));
    assert_eq!(looked_at_beyond(&table, FlowMask::default()), one_bit);
    assert_eq!(looked_at_beyond(&table, tcp), tcp);
    table.insert(Rule::new(2, 10, &FlowMatch::new(&udp, tcp), &ExtraMatch::ANY));
    assert_eq!(looked_at_beyond(&table, FlowMask::default()), tcp);
}

#[test]
fn only_another_rule_of_the_priority_that_shares_packets_overlaps() {
    let mut table = RuleTable::new();
    let host = mask_of(|mask| mask.ip_dst[0] = 0xff);
    let port = mask_of(|mask| mask.l4_dst = u16::MAX);
    let rule = |priority, key: FlowKey, mask| {
        Rule::new(0, priority, &FlowMatch::new(&key, mask), &ExtraMatch::ANY)
    };
    let first = rule(10, tcp_to(1, 9, 80), host);
    table.insert(first.clone());
    table.insert(rule(20, tcp_to(1, 9, 80), host));
    table.insert(rule(30, tcp_to(1, 9, 80), host));
    let overlapping = |rule: &Rule| table.overlapping(rule.priority, &rule.matcher);
    assert_eq!(overlapping(&rule(10, tcp_to(1, 9, 80), port)), Some(&first));
    assert_eq!(overlapping(&rule(10, tcp_to(1, 9, 80), host | port)), Some(&first));
    assert_eq!(overlapping(&rule(11, tcp_to(1, 9, 80), port)), None);
    assert_eq!(overlapping(&rule(10, tcp_to(1, 8, 80), host)), None);
    assert_eq!(overlapping(&rule(10, tcp_to(1, 8, 80), host | port)), None);
    assert_eq!(overlapping(&first), None);
}

/// Whoever reads a table bit by bit sees every rule that stays.
#[test]
fn a_cursor_meets_each_lasting_rule_once_while_others_come_and_go() {
    let mut table = RuleTable::new();
    let port = mask_of(|mask| mask.l4_dst = u16::MAX);
    let rule = |n: u16| {
        let matcher = FlowMatch::new(&tcp_to(1, 1, n), port);
        Rule::new(usize::from(n), 10, &matcher, &ExtraMatch::ANY)
    };
    (0..100).for_each(|n| assert_eq!(table.insert(rule(n)), None));
    let (mut cursor, mut met) = (0, Vec::new());
    for turn in 0.. {
        let (rules, next) = table.iter_from(cursor, 7);
        met.extend(rules.map(|rule| rule.id).filter(|id| id % 2 == 0 && *id < 100));
        if next == 0 {
            break;
        }
        cursor = next;
        let gone = rule(turn * 2 + 1);
        assert_eq!(table.remove(gone.priority, &gone.matcher), Some(gone));
        table.insert(rule(200 + turn));
    }
    met.sort_unstable();
    assert_eq!(met, (0..100).step_by(2).collect::<Vec<_>>());
    assert_eq!(table.iter_from(0, 0).0.count(), 0);
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
