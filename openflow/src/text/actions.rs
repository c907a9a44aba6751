//! Parses lists of actions.

use super::assign::{self, transport_field};
use super::error::ParseError;
use super::format::PACKET_IN_REASONS;
use super::known::{self, UNSUPPORTED_ACTIONS};
use super::lexer::{Item, Lexer};
use super::names::{PortNames, parse_port};
use super::suggest::nearest;
use super::value::{parse_field, parse_number, unknown_port};
use crate::action::{Action, Actions, VLAN_TPIDS};
use crate::event::OFPR_ACTION;
use crate::field::{Field, Prerequisite};
use crate::flow_mod::{
    first_inconsistent, first_inconsistent_in_set, pushes_too_many_tags, tagged_vid,
};
use crate::limits::VLAN_TAGS_MAX;
use crate::oxm::{Match, OxmField};
use crate::port::{OFPCML_NO_BUFFER, OFPP_CONTROLLER, OFPP_IN_PORT};

pub(super) fn required<'a>(
    key: &str,
    value: Option<&'a str>,
    what: &str,
) -> Result<&'a str, ParseError> {
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| ParseError::new(format!("{key} needs {what}: {key}:VALUE")))
}

/// A list of actions being read.
pub(super) struct ListParser<'a> {
    matcher: &'a Match,
    names: &'a dyn PortNames,
    actions: Vec<Action>,
    /// The text that each action came from.
    texts: Vec<String>,
}

impl<'a> ListParser<'a> {
    pub(super) fn new(matcher: &'a Match, names: &'a dyn PortNames) -> ListParser<'a> {
        ListParser { matcher, names, actions: Vec::new(), texts: Vec::new() }
    }

    /// `subject` is what a prerequisite would be missing in.
    pub(super) fn finish(self, subject: &str) -> Result<Actions, ParseError> {
        if let Some(lacking) = first_inconsistent(self.matcher, &self.actions) {
            return Err(self.needs(lacking, subject));
        }
        check_tags(self.matcher, &self.actions)?;
        Ok(Actions::new(self.actions)?)
    }

    /// Reads the inside of `write_actions(...)` that follows this list.
    pub(super) fn parse_set(&self, text: &str) -> Result<Actions, ParseError> {
        let mut set = ListParser::new(self.matcher, self.names);
        let mut lexer = Lexer::new(text);
        while let Some(item) = lexer.next()? {
            if item.key != "drop" {
                set.item(item)?;
            }
        }
        let outsider = set.actions.iter().position(|action| !action.may_be_in_a_set());
        if let Some(index) = outsider {
            let text = set.texts.get(index).map_or("an action", String::as_str);
            return Err(ParseError::new(format!(
                "write_actions: {text} cannot wait in an action set"
            )));
        }
        if let Some(lacking) = first_inconsistent_in_set(self.matcher, &self.actions, &set.actions)
        {
            return Err(set.needs(lacking, "match"));
        }
        Ok(Actions::new(set.actions)?)
    }

    fn needs(&self, (index, needed): (usize, Prerequisite), subject: &str) -> ParseError {
        let text = self.texts.get(index).map_or("an action", String::as_str);
        ParseError::new(format!("{text} needs {} in the {subject}", needed.remedy()))
    }

    fn push(&mut self, item: Item<'_>, action: Action) {
        self.actions.push(action);
        self.texts.push(match item.value {
            Some(value) => format!("{}:{value}", item.key),
            None => item.key.to_owned(),
        });
    }

    pub(super) fn item(&mut self, item: Item<'_>) -> Result<(), ParseError> {
        let key = item.key.to_ascii_lowercase();
        let value = |what| required(item.key, item.value, what);
        let several = match key.as_str() {
            "mod_vlan_vid" | "mod_vlan_pcp" => return self.mod_vlan(item),
            "set_field" => assign::set_field(value("VALUE->FIELD")?, self.matcher, self.names)?,
            "load" => assign::load(value("VALUE->FIELD[BITS]")?)?,
            _ => vec![self.action(&key, item)?],
        };
        several.into_iter().for_each(|action| self.push(item, action));
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
                set(transport_field(name, item, self.matcher)?, "a port number")?
            }
            "strip_vlan" | "pop_vlan" => Action::PopVlan,
            "push_vlan" => push_vlan(value("0x8100 or 0x88a8")?)?,
            "move" => assign::copy(value("FIELD[BITS]->FIELD[BITS]")?)?,
            "resubmit" => resubmit(value("a port, or (PORT,TABLE)")?, self.names)?,
            "note" => note(item.value.unwrap_or_default())?,
            "mod_nw_ttl" => Action::SetNwTtl(number(255)? as u8),
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
            // No port's name but a quoted one has these.
            if text.contains(['[', '=']) {
                return ParseError::new(format!(
                    "output:{text}: output to a register, or of the beginning of a packet, is not supported"
                ));
            }
            ParseError::new(format!(
                "output:{text}: expected a port number up to 65279, the name of a port of this bridge, \
                 or one of IN_PORT, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL"
            ))
        })
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

/// Refuses pushes of which the frame would have no room for the last.
pub(super) fn check_tags<'a>(
    matcher: &Match,
    actions: impl IntoIterator<Item = &'a Action>,
) -> Result<(), ParseError> {
    if pushes_too_many_tags(matcher, actions) {
        return Err(ParseError::new(format!(
            "push_vlan: a frame has at most {VLAN_TAGS_MAX} tags"
        )));
    }
    Ok(())
}

fn output_to(port: u32) -> Action {
    let max_len = if port == OFPP_CONTROLLER { OFPCML_NO_BUFFER } else { 0 };
    Action::Output { port, max_len }
}

/// `CONTROLLER`, `CONTROLLER:BYTES` or `controller(max_len=BYTES,reason=REASON,id=ID)`.
fn controller(item: Item<'_>) -> Result<Action, ParseError> {
    let (mut max_len, mut controller_id, mut reason) = (OFPCML_NO_BUFFER, 0, OFPR_ACTION);
    let text = item.value.unwrap_or_default();
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        max_len = parse_number(item.key, text, 65535)? as u16;
    } else {
        let mut lexer = Lexer::new(text);
        while let Some(Item { key, value }) = lexer.next()? {
            let value = value.unwrap_or_default();
            match key {
                "max_len" => max_len = parse_number(key, value, 65535)? as u16,
                "id" => controller_id = parse_number(key, value, 65535)? as u16,
                "reason" => reason = packet_in_reason(key, value)?,
                "userdata" | "pause" | "meter_id" => {
                    return Err(ParseError::new(format!("controller: {key} is not supported")));
                }
                _ => {
                    return Err(ParseError::new(format!(
                        "controller: unknown {key}; it takes max_len=BYTES, reason=REASON and id=ID"
                    )));
                }
            }
        }
    }
    Ok(match (controller_id, reason) {
        (0, OFPR_ACTION) => Action::Output { port: OFPP_CONTROLLER, max_len },
        _ => Action::Controller { max_len, controller_id, reason },
    })
}

fn packet_in_reason(key: &str, text: &str) -> Result<u8, ParseError> {
    let known = PACKET_IN_REASONS.iter().find(|(_, name)| *name == text);
    let expected = "no_match, action or invalid_ttl";
    known.map(|(reason, _)| *reason).ok_or_else(|| ParseError::value(key, text, expected))
}

/// `PORT`, `PORT,TABLE` or `,TABLE`.
fn resubmit(text: &str, names: &dyn PortNames) -> Result<Action, ParseError> {
    let (port, table) = text.split_once(',').unwrap_or((text, ""));
    let in_port = match port {
        "" => None,
        port => Some(parse_port(port, names).ok_or_else(|| unknown_port("resubmit", port))?),
    };
    let table = match table {
        "" => None,
        table if table.split(',').any(|word| word == "ct") => {
            return Err(ParseError::new("resubmit: ct is not supported"));
        }
        table => Some(parse_number("resubmit to table", table, 254)? as u8),
    };
    let in_port = in_port.filter(|port| *port != OFPP_IN_PORT);
    if in_port.is_none() && table.is_none() {
        return Err(ParseError::new(format!(
            "resubmit({text}) needs a port or a table: resubmit(PORT,TABLE) or resubmit(,TABLE)"
        )));
    }
    Ok(Action::Resubmit { in_port, table })
}

/// Pairs of hexadecimal digits, between which there may be dots.
fn note(text: &str) -> Result<Action, ParseError> {
    let expected = || ParseError::value("note", text, "pairs of hexadecimal digits");
    let mut bytes = Vec::new();
    let mut rest = text.trim_start_matches('.');
    while !rest.is_empty() {
        let (pair, after) = rest.split_at_checked(2).ok_or_else(expected)?;
        if !pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(expected());
        }
        bytes.push(u8::from_str_radix(pair, 16).map_err(|_| expected())?);
        rest = after.trim_start_matches('.');
    }
    Ok(Action::note(&bytes))
}

fn push_vlan(text: &str) -> Result<Action, ParseError> {
    let tpid = parse_number("push_vlan", text, 0xffff)? as u16;
    if VLAN_TPIDS.contains(&tpid) {
        Ok(Action::PushVlan(tpid))
    } else {
        Err(ParseError::new(format!("push_vlan:{text}: expected 0x8100 or 0x88a8")))
    }
}

fn unknown_action(key: &str) -> ParseError {
    if UNSUPPORTED_ACTIONS.contains(&key) {
        return ParseError::new(format!("action {key} is not supported"));
    }
    if known::ACTIONS.contains(&key) {
        return ParseError::new(format!("action {key} is not supported in this form"));
    }
    ParseError::new(match nearest(key, known::ACTIONS.into_iter()) {
        Some(meant) => format!("unknown action {key}; did you mean {meant}?"),
        None => format!("unknown action {key}, and no port has that name"),
    })
}
