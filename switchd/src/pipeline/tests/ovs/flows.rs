//! Random flows, as text.

use proptest::option::weighted;
use proptest::prelude::*;

use super::super::rules::PORTS;
use super::fields::{self, Die, FieldWords, Use, any_die};

/// Tables that random flows use.
pub(super) const TABLES: u8 = 4;

/// What packets a flow is for: the words that say so, and the fields that such packets have.
#[derive(Debug)]
struct Kind {
    words: &'static str,
    fields: &'static [&'static [FieldWords]],
}

const fn kind(words: &'static str, fields: &'static [&'static [FieldWords]]) -> Kind {
    Kind { words, fields }
}

use fields::{
    ANY_PACKET as ANY, ARP, ICMP, ICMPV6, IP, IPV4, IPV6, ND, ND_ADVERT, ND_SOLICIT, SCTP, TCP, UDP,
};

const KINDS: &[Kind] = &[
    kind("", &[ANY]),
    kind("ip", &[ANY, IPV4, IP]),
    kind("tcp", &[ANY, IPV4, IP, TCP]),
    kind("udp", &[ANY, IPV4, IP, UDP]),
    kind("ipv6", &[ANY, IPV6, IP]),
    kind("tcp6", &[ANY, IPV6, IP, TCP]),
    kind("udp6", &[ANY, IPV6, IP, UDP]),
    kind("", &[ANY]),
    kind("", &[ANY]),
    kind("", &[ANY]),
    kind("ip", &[ANY, IPV4, IP]),
    kind("ipv6", &[ANY, IPV6, IP]),
    kind("sctp", &[ANY, IPV4, IP, SCTP]),
    kind("icmp", &[ANY, IPV4, IP, ICMP]),
    kind("sctp6", &[ANY, IPV6, IP, SCTP]),
    kind("icmp6", &[ANY, IPV6, IP, ICMPV6]),
    kind("icmp6,icmpv6_type=135,icmpv6_code=0", &[ANY, IPV6, IP, ND, ND_SOLICIT]),
    kind("icmp6,icmpv6_type=136,icmpv6_code=0", &[ANY, IPV6, IP, ND, ND_ADVERT]),
    kind("arp", &[ANY, ARP]),
    kind("rarp", &[ANY, ARP]),
    kind("dl_type=0x88cc", &[ANY]),
    kind("dl_type=0x05ff", &[ANY]),
];

/// Words about tags, and whether they say that there is one.
const TAGS: &[(&str, Option<bool>)] = &[
    ("vlan_tci=0", Some(false)),
    ("vlan_tci=0x1000/0x1000", Some(true)),
    ("dl_vlan=1", Some(true)),
    ("dl_vlan=2", Some(true)),
    ("dl_vlan=0", Some(true)),
    ("dl_vlan=1,dl_vlan_pcp=1", Some(true)),
    ("dl_vlan_pcp=0", Some(true)),
    ("vlan_vid=0x1001/0x1001", Some(true)),
    ("vlan_vid=0x1000/0x1002", Some(true)),
    ("dl_vlan=0xffff", Some(false)),
    ("vlan_tci=0x3001/0xfff1", Some(true)),
];

const FRAGMENTS: &[&str] = &["no", "yes", "first", "not_later", "later"];
const PROTOCOLS: &[u8] = &[6, 17, 1, 58, 132, 44, 0, 99];

/// A flow before it is known what its kind allows.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    kind: usize,
    pub(super) table: u8,
    tags: Option<usize>,
    matches: Vec<Die>,
    apply: Vec<Die>,
    clear: bool,
    write: Vec<Die>,
    metadata: Option<Die>,
    /// How many tables further, if there are so many.
    goto: u8,
}

pub(super) fn any_flow() -> impl Strategy<Value = Flow> {
    let table = prop_oneof![3 => Just(0), 2 => Just(1), 1 => 2..TABLES];
    let dice = |most| prop::collection::vec(any_die(), 0..=most);
    let matches = prop_oneof![4 => dice(0), 3 => dice(1), 2 => dice(2), 1 => dice(3)];
    (
        (0..KINDS.len(), table, weighted(0.2, 0..TAGS.len()), matches),
        (dice(5), prop::bool::weighted(0.15), dice(3), weighted(0.25, any_die())),
        prop_oneof![2 => Just(0), 3 => 1..3_u8],
    )
        .prop_map(|((kind, table, tags, matches), (apply, clear, write, metadata), goto)| {
            Flow { kind, table, tags, matches, apply, clear, write, metadata, goto }
        })
}

impl Flow {
    fn kind(&self) -> &'static Kind {
        &KINDS[self.kind]
    }

    fn fields(&self) -> Vec<&'static FieldWords> {
        self.kind().fields.iter().copied().flatten().collect()
    }

    fn has(&self, group: &'static [FieldWords]) -> bool {
        let first = group.first().map(|field| field.name);
        self.fields().iter().any(|field| Some(field.name) == first)
    }

    /// As `ovs-ofctl add-flow` takes it.
    pub(super) fn text(&self, priority: u16) -> String {
        let cookie = u64::from(priority) << 8 | u64::from(self.table);
        format!("{},cookie={cookie:#x},actions={}", self.place(priority), self.action_words())
    }

    /// Which flow it is, as `ovs-ofctl --strict del-flows` takes it.
    pub(super) fn place(&self, priority: u16) -> String {
        let mut words = vec![format!("table={}", self.table), format!("priority={priority}")];
        words.extend(self.match_words());
        words.join(",")
    }

    fn match_words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        words.extend(Some(self.kind().words.to_owned()).filter(|words| !words.is_empty()));
        words.extend(self.tags.map(|tags| TAGS[tags].0.to_owned()));
        let mut named = Vec::new();
        for die in &self.matches {
            let (name, text) = self.match_word(die);
            if !named.contains(&name) {
                named.push(name);
                words.push(format!("{name}={text}"));
            }
        }
        words
    }

    fn match_word(&self, die: &Die) -> (&'static str, String) {
        let has_ports = [TCP, UDP, SCTP, ICMP, ICMPV6, ND].iter().any(|group| self.has(group));
        // What a later fragment's ports are cannot be asked.
        let fragments = if has_ports { &FRAGMENTS[..4] } else { FRAGMENTS };
        if self.has(IP) && die.pick % 16 == 15 {
            return ("ip_frag", (*fragments[usize::from(die.value) % fragments.len()]).to_owned());
        }
        if self.has(IP) && !has_ports && die.pick % 16 == 14 {
            let protocol = PROTOCOLS[usize::from(die.value) % PROTOCOLS.len()];
            return ("nw_proto", protocol.to_string());
        }
        let mut fields = self.fields();
        fields.retain(|field| field.usage != Use::Read);
        let field = die.pick(&fields);
        (field.name, field.text(die))
    }

    fn action_words(&self) -> String {
        let tags = self.tags.and_then(|tags| TAGS[tags].1);
        let mut list = ActionList {
            flow: self,
            tags: usize::from(tags == Some(true)),
            is_untagged: tags == Some(false),
            is_applied: true,
        };
        let mut words: Vec<String> = self.apply.iter().map(|die| list.word(die)).collect();
        (list.is_untagged, list.is_applied) = (false, false);
        let write: Vec<String> = self.write.iter().map(|die| list.word(die)).collect();
        words.extend(self.clear.then(|| "clear_actions".to_owned()));
        if !write.is_empty() {
            words.push(format!("write_actions({})", write.join(",")));
        }
        let metadata = fields::ANY_PACKET.iter().find(|field| field.name == "metadata");
        if let (Some(die), Some(metadata)) = (self.metadata, metadata) {
            words.push(format!("write_metadata:{}", metadata.text(&die)));
        }
        if self.goto > 0 && self.table + self.goto < TABLES {
            words.push(format!("goto_table:{}", self.table + self.goto));
        }
        if words.is_empty() { "drop".to_owned() } else { words.join(",") }
    }
}

/// A list of actions in the making.
struct ActionList<'a> {
    flow: &'a Flow,
    /// Tags that every packet has here, as far as the match tells.
    tags: usize,
    /// The match says that there is no tag, and none has been pushed.
    is_untagged: bool,
    /// At once: an action set holds no resubmits, nor notes.
    is_applied: bool,
}

/// What an action may be, before its die decides the values.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Output,
    Reserved(&'static str),
    Set(&'static FieldWords),
    Load(&'static FieldWords),
    Move(&'static FieldWords),
    Resubmit,
    Note,
    Controller,
    /// The packet came from another port.
    Enter,
    DecTtl,
    PushVlan,
    PopVlan,
    SetVid,
    SetPcp,
}

impl ActionList<'_> {
    fn choices(&self) -> Vec<Choice> {
        let reserved = ["in_port", "all", "flood", "normal", "normal"].map(Choice::Reserved);
        let mut choices = vec![Choice::Output; 6];
        choices.extend(reserved);
        let settable = self.flow.fields().into_iter().filter(|field| field.is_settable());
        for field in settable {
            choices.extend([Choice::Set(field), Choice::Load(field), Choice::Move(field)]);
        }
        if self.is_applied {
            choices.extend([Choice::Resubmit, Choice::Resubmit, Choice::Note]);
        }
        choices.extend([Choice::Controller, Choice::Enter]);
        if self.flow.has(IP) {
            choices.extend([Choice::DecTtl; 2]);
        }
        if self.tags < 2 {
            choices.push(Choice::PushVlan);
        }
        if self.tags > 0 {
            choices.extend([Choice::PopVlan, Choice::PopVlan, Choice::SetVid, Choice::SetPcp]);
        }
        choices
    }

    fn word(&mut self, die: &Die) -> String {
        let choices = self.choices();
        match die.pick(&choices) {
            Choice::Output => format!("output:{}", u32::from(die.value) % (PORTS + 1) + 1),
            Choice::Reserved(port) => (*port).to_owned(),
            Choice::Set(field) => {
                format!("set_field:{}->{}", field.text(die), field.name)
            }
            Choice::Load(field) => load(field, die),
            Choice::Move(field) => self.copy(field, die),
            Choice::Resubmit => self.resubmit(die),
            Choice::Controller => match die.value % 3 {
                0 => "controller".to_owned(),
                1 => format!("controller:{}", die.mask % 100),
                _ if !self.is_applied => "controller:20".to_owned(),
                _ => format!("controller(reason=no_match,max_len={})", die.mask % 100),
            },
            Choice::Enter => format!("set_field:{}->in_port", u32::from(die.value) % PORTS + 1),
            Choice::Note => format!("note:{:02x}", die.value >> 8),
            Choice::DecTtl => "dec_ttl".to_owned(),
            Choice::PushVlan => self.push(die),
            Choice::PopVlan => {
                self.tags -= 1;
                "pop_vlan".to_owned()
            }
            Choice::SetVid => set_vid(die.value),
            Choice::SetPcp => set_pcp(die.value),
        }
    }

    /// Some bits of any field of the same packets.
    fn copy(&self, to: &FieldWords, die: &Die) -> String {
        let fields = self.flow.fields();
        let from = &fields[usize::from(die.value) % fields.len()];
        let count = (die.mask % 33 + 1).min(to.bits.min(from.bits).into()) as u8;
        let first = |field: &FieldWords| (die.mask >> 8) as u8 % (field.bits - count + 1);
        format!("move:{}->{}", from.part(first(from), count), to.part(first(to), count))
    }

    /// To a later table for the most part: others lead in circles.
    fn resubmit(&self, die: &Die) -> String {
        let later = TABLES - 1 - self.flow.table;
        let table = match die.mask % 8 {
            0 => die.value as u8 % TABLES,
            _ if later == 0 => return "note:00".to_owned(),
            _ => self.flow.table + 1 + die.value as u8 % later,
        };
        match die.mask / 8 % 4 {
            0 => format!("resubmit({},{table})", u32::from(die.value >> 8) % PORTS + 1),
            _ => format!("resubmit(,{table})"),
        }
    }

    /// Where the packet may have a tag, the new tag's VLAN and priority are set: what they are else
    /// differs.
    fn push(&mut self, die: &Die) -> String {
        let tpid = if die.mask.is_multiple_of(4) { "0x88a8" } else { "0x8100" };
        let push = format!("push_vlan:{tpid}");
        self.tags += 1;
        if std::mem::take(&mut self.is_untagged) && die.mask.is_multiple_of(2) {
            return push;
        }
        [push, set_vid(die.value), set_pcp(die.value >> 8)].join(",")
    }
}

/// Some bits of a field, from the lowest more often than not.
fn load(field: &FieldWords, die: &Die) -> String {
    let first = if die.mask.is_multiple_of(4) { (die.mask >> 8) as u8 % field.bits } else { 0 };
    let count = (die.mask / 4 % 64 + 1).min(u16::from(field.bits - first)) as u8;
    let value = field.value(die.value) >> first & (u128::MAX >> (128 - u32::from(count)));
    format!("load:{value:#x}->{}", field.part(first, count))
}

fn set_vid(value: u16) -> String {
    format!("set_field:{}->vlan_vid", 0x1001 + value % 3)
}

fn set_pcp(value: u16) -> String {
    format!("set_field:{}->vlan_pcp", value % 8)
}
