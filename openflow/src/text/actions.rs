//! Parses the actions part of a flow.

use super::error::ParseError;
use super::lexer::{Item, Lexer};
use super::matches::field_for;
use super::names::{PortNames, parse_port};
use super::suggest::nearest;
use super::value::{parse_field, parse_number};
use crate::action::{Action, Actions, VLAN_TPIDS};
use crate::field::{Field, OFPVID_PRESENT, Prerequisite};
use crate::flow_mod::{first_inconsistent, tagged_vid};
use crate::instruction::{Instruction, Instructions};
use crate::oxm::{Match, OxmField};
use crate::port::{OFPCML_NO_BUFFER, OFPP_CONTROLLER};

/// Names of actions and instructions, for suggestions.
const ACTION_KEYS: [&str; 27] = [
    "output",
    "drop",
    "normal",
    "flood",
    "all",
    "in_port",
    "local",
    "controller",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_tos",
    "mod_nw_ecn",
    "mod_tp_src",
    "mod_tp_dst",
    "mod_vlan_vid",
    "mod_vlan_pcp",
    "strip_vlan",
    "pop_vlan",
    "push_vlan",
    "set_field",
    "dec_ttl",
    "goto_table",
    "write_metadata",
    "write_actions",
    "clear_actions",
];

/// Actions of ovs-ofctl that are known but not supported.
const UNSUPPORTED: [&str; 29] = [
    "resubmit",
    "move",
    "load",
    "push",
    "pop",
    "learn",
    "note",
    "exit",
    "enqueue",
    "set_queue",
    "pop_queue",
    "mod_nw_ttl",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "dec_mpls_ttl",
    "push_mpls",
    "pop_mpls",
    "bundle",
    "bundle_load",
    "multipath",
    "fin_timeout",
    "conjunction",
    "ct",
    "ct_clear",
    "nat",
    "clone",
    "encap",
    "decap",
];

/// Reads the list after `actions=`. `matcher` is the flow's match, which decides what names such
/// as `mod_tp_src` mean and what may be done at all.
pub(super) fn parse_instructions(
    text: &str,
    matcher: &Match,
    names: &dyn PortNames,
) -> Result<Instructions, ParseError> {
    let mut list = ListParser::new(matcher, names);
    let mut instructions = Vec::new();
    // Rank and name of the item before, to hold the text to the order of execution.
    let mut before: Option<(u8, &str)> = None;
    let mut lexer = Lexer::new(text);
    while let Some(item) = lexer.next()? {
        let instruction = parse_instruction(item, matcher, names)?;
        let rank = instruction.as_ref().map_or(ACTIONS_RANK, Instruction::rank);
        match before {
            Some((_, last)) if last == "drop" || item.key == "drop" => {
                return Err(ParseError::new("drop must be the only action"));
            }
            Some((last_rank, last)) if rank < last_rank => {
                return Err(ParseError::new(format!("{} must come before {last}", item.key)));
            }
            Some((last_rank, last)) if rank == last_rank && instruction.is_some() => {
                return Err(ParseError::new(format!("{last} may be given once")));
            }
            _ => before = Some((rank, item.key)),
        }
        match instruction {
            Some(instruction) => instructions.push(instruction),
            None if item.key == "drop" => {}
            None => list.item(item)?,
        }
    }
    // An empty list says nothing; neither does ovs-ofctl send it.
    instructions.push(Instruction::ApplyActions(list.finish()?));
    instructions.retain(|instruction| match instruction {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
            !actions.is_empty()
        }
        _ => true,
    });
    Ok(Instructions::new(instructions)?)
}

/// Where plain actions stand in the order of execution: as apply-actions.
const ACTIONS_RANK: u8 = 1;

/// The instruction that an item is, `None` if it is an action.
fn parse_instruction(
    item: Item<'_>,
    matcher: &Match,
    names: &dyn PortNames,
) -> Result<Option<Instruction>, ParseError> {
    let Item { key, value } = item;
    let number = |max: u128| parse_number(key, required(key, value, "a number")?, max);
    Ok(Some(match key {
        "goto_table" => Instruction::GotoTable(number(254)? as u8),
        "meter" => Instruction::Meter(number(u128::from(u32::MAX))? as u32),
        "clear_actions" => Instruction::ClearActions,
        "write_metadata" => {
            let text = required(key, value, "a number")?;
            let field = parse_field(Field::Metadata, key, text, names)?;
            Instruction::WriteMetadata { metadata: field.value() as u64, mask: field.mask() as u64 }
        }
        "write_actions" => {
            let mut list = ListParser::new(matcher, names);
            let mut lexer = Lexer::new(value.ok_or_else(|| {
                ParseError::new("write_actions needs a list: write_actions(ACTIONS)")
            })?);
            while let Some(item) = lexer.next()? {
                if item.key != "drop" {
                    list.item(item)?;
                }
            }
            Instruction::WriteActions(Actions::new(list.actions)?)
        }
        "apply_actions" => {
            return Err(ParseError::new("apply_actions is what a plain list of actions means"));
        }
        _ => return Ok(None),
    }))
}

fn required<'a>(key: &str, value: Option<&'a str>, what: &str) -> Result<&'a str, ParseError> {
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| ParseError::new(format!("{key} needs {what}: {key}:VALUE")))
}

/// A list of actions being read.
struct ListParser<'a> {
    matcher: &'a Match,
    names: &'a dyn PortNames,
    actions: Vec<Action>,
    /// The text that each action came from.
    texts: Vec<String>,
}

impl<'a> ListParser<'a> {
    fn new(matcher: &'a Match, names: &'a dyn PortNames) -> ListParser<'a> {
        ListParser { matcher, names, actions: Vec::new(), texts: Vec::new() }
    }

    fn finish(self) -> Result<Actions, ParseError> {
        if let Some((index, needed)) = first_inconsistent(self.matcher, &self.actions) {
            let text = self.texts.get(index).map_or("an action", String::as_str);
            return Err(ParseError::new(format!("{text} needs {} in the match", needed.remedy())));
        }
        Ok(Actions::new(self.actions)?)
    }

    fn push(&mut self, item: Item<'_>, action: Action) {
        self.actions.push(action);
        self.texts.push(match item.value {
            Some(value) => format!("{}:{value}", item.key),
            None => item.key.to_owned(),
        });
    }

    fn item(&mut self, item: Item<'_>) -> Result<(), ParseError> {
        let key = item.key.to_ascii_lowercase();
        if matches!(key.as_str(), "mod_vlan_vid" | "mod_vlan_pcp") {
            return self.mod_vlan(item);
        }
        let action = self.action(&key, item)?;
        self.push(item, action);
        Ok(())
    }

    fn action(&self, key: &str, item: Item<'_>) -> Result<Action, ParseError> {
        let value = |what| required(item.key, item.value, what);
        let set = |field, what| {
            parse_field(field, item.key, value(what)?, self.names).map(Action::SetField)
        };
        let number = |max: u128| parse_number(item.key, value("a number")?, max);
        Ok(match key {
            "output" => self.output(value("a port")?)?,
            "controller" => controller(item)?,
            "mod_dl_src" => set(Field::EthSrc, "an Ethernet address")?,
            "mod_dl_dst" => set(Field::EthDst, "an Ethernet address")?,
            "mod_nw_src" => set(Field::Ipv4Src, "an IPv4 address")?,
            "mod_nw_dst" => set(Field::Ipv4Dst, "an IPv4 address")?,
            "mod_nw_tos" => Action::SetField(OxmField::exact(Field::IpDscp, number(255)? >> 2)),
            "mod_nw_ecn" => set(Field::IpEcn, "a number")?,
            "mod_tp_src" | "mod_tp_dst" => {
                let name = if key == "mod_tp_src" { "tp_src" } else { "tp_dst" };
                set(self.transport_field(name, item)?, "a port number")?
            }
            "strip_vlan" | "pop_vlan" => Action::PopVlan,
            "push_vlan" => push_vlan(value("0x8100 or 0x88a8")?)?,
            "set_field" => self.set_field(value("VALUE->FIELD")?)?,
            "dec_ttl" if item.value.is_none() => Action::DecNwTtl,
            "group" => Action::Group(number(u128::from(u32::MAX))? as u32),
            _ => match item.value {
                None => match parse_port(item.key, self.names) {
                    Some(port) => output_to(port),
                    None => return Err(unknown_action(item.key)),
                },
                Some(_) => return Err(unknown_action(item.key)),
            },
        })
    }

    fn output(&self, text: &str) -> Result<Action, ParseError> {
        parse_port(text, self.names).map(output_to).ok_or_else(|| {
            ParseError::new(format!(
                "output:{text}: expected a port number up to 65279, the name of a port of this bridge, \
                 or one of IN_PORT, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL"
            ))
        })
    }

    /// The field that `tp_src` or `tp_dst` means; ICMP has no ports to set.
    fn transport_field(&self, name: &str, item: Item<'_>) -> Result<Field, ParseError> {
        let field = field_for(name, self.matcher).ok();
        let is_port = |field: &Field| field.byte_len() == 2;
        field.filter(is_port).ok_or_else(|| {
            ParseError::new(format!(
                "{}:{} needs tcp, udp or sctp in the match",
                item.key,
                item.value.unwrap_or_default()
            ))
        })
    }

    /// `VALUE->FIELD`.
    fn set_field(&self, text: &str) -> Result<Action, ParseError> {
        let (value, name) = text.rsplit_once("->").ok_or_else(|| {
            ParseError::new(format!("set_field:{text}: expected set_field:VALUE->FIELD"))
        })?;
        if name == "nw_tos" {
            let tos = parse_number(name, value, 255)?;
            return Ok(Action::SetField(OxmField::exact(Field::IpDscp, tos >> 2)));
        }
        let item = Item { key: "set_field", value: Some(text) };
        let field = match name {
            "tp_src" | "tp_dst" => self.transport_field(name, item)?,
            "nw_src" => Field::Ipv4Src,
            "nw_dst" => Field::Ipv4Dst,
            _ => Field::from_name(name).ok_or_else(|| unknown_set_field(text, name))?,
        };
        if !field.info().settable {
            return Err(ParseError::new(format!("set_field:{text}: {name} cannot be set")));
        }
        let parsed = parse_field(field, name, value, self.names)?;
        if !parsed.is_exact() {
            return Err(ParseError::new(format!(
                "set_field:{text}: setting a field in part (with a mask) is not supported"
            )));
        }
        if field == Field::VlanVid && parsed.value() & u128::from(OFPVID_PRESENT) == 0 {
            return Err(ParseError::new(format!(
                "set_field:{text}: vlan_vid is set together with bit 12: write {} or mod_vlan_vid:{value}",
                parsed.value() | u128::from(OFPVID_PRESENT)
            )));
        }
        Ok(Action::SetField(parsed))
    }

    /// `mod_vlan_vid` and `mod_vlan_pcp` push a tag if there is none yet, as in OpenFlow 1.0.
    fn mod_vlan(&mut self, item: Item<'_>) -> Result<(), ParseError> {
        let text = required(item.key, item.value, "a number")?;
        let field = if item.key.eq_ignore_ascii_case("mod_vlan_vid") {
            tagged_vid(parse_number(item.key, text, 4095)? as u16)
        } else {
            OxmField::exact(Field::VlanPcp, parse_number(item.key, text, 7)?)
        };
        let mut tagged = Prerequisite::Vlan.satisfied_by(self.matcher);
        for action in &self.actions {
            match action {
                Action::PushVlan(_) => tagged = true,
                Action::PopVlan => tagged = false,
                _ => {}
            }
        }
        if !tagged {
            self.push(item, Action::PushVlan(0x8100));
        }
        self.push(item, Action::SetField(field));
        Ok(())
    }
}

fn output_to(port: u32) -> Action {
    let max_len = if port == OFPP_CONTROLLER { OFPCML_NO_BUFFER } else { 0 };
    Action::Output { port, max_len }
}

/// `CONTROLLER`, `CONTROLLER:BYTES` or `controller(max_len=BYTES)`.
fn controller(item: Item<'_>) -> Result<Action, ParseError> {
    let max_len = match item.value {
        None | Some("") => OFPCML_NO_BUFFER,
        Some(text) => {
            let text = text.strip_prefix("max_len=").unwrap_or(text);
            parse_number(item.key, text, 65535)? as u16
        }
    };
    Ok(Action::Output { port: OFPP_CONTROLLER, max_len })
}

fn push_vlan(text: &str) -> Result<Action, ParseError> {
    let tpid = parse_number("push_vlan", text, 0xffff)? as u16;
    if VLAN_TPIDS.contains(&tpid) {
        Ok(Action::PushVlan(tpid))
    } else {
        Err(ParseError::new(format!("push_vlan:{text}: expected 0x8100 or 0x88a8")))
    }
}

fn unknown_set_field(text: &str, name: &str) -> ParseError {
    let settable = Field::ALL.iter().map(|field| field.info()).filter(|info| info.settable);
    let names =
        settable.flat_map(|info| std::iter::once(info.name).chain(info.aliases.iter().copied()));
    let hint = match nearest(name, names) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => String::new(),
    };
    ParseError::new(format!("set_field:{text}: unknown field {name}{hint}"))
}

fn unknown_action(key: &str) -> ParseError {
    if UNSUPPORTED.contains(&key) {
        return ParseError::new(format!("action {key} is not supported"));
    }
    ParseError::new(match nearest(key, ACTION_KEYS.into_iter()) {
        Some(meant) => format!("unknown action {key}; did you mean {meant}?"),
        None => format!("unknown action {key}, and no port has that name"),
    })
}
