//! Parses the actions part of a flow: instructions, and the actions that stand for apply-actions.

use super::actions::{ListParser, check_tags, required};
use super::error::ParseError;
use super::lexer::{Item, Lexer};
use super::names::PortNames;
use super::value::parse_number;
use crate::action::Actions;
use crate::instruction::{Instruction, Instructions};
use crate::oxm::Match;

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
        let instruction = parse_instruction(item, &list)?;
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
    instructions.push(Instruction::ApplyActions(list.finish("match")?));
    instructions.retain(|instruction| match instruction {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
            !actions.is_empty()
        }
        _ => true,
    });
    let instructions = Instructions::new(instructions)?;
    let all = instructions.apply_actions().iter().chain(instructions.write_actions());
    check_tags(matcher, all)?;
    Ok(instructions)
}

/// Reads a list of actions alone, for a packet that `matcher` describes.
pub(super) fn parse_actions(
    text: &str,
    matcher: &Match,
    names: &dyn PortNames,
) -> Result<Actions, ParseError> {
    let mut list = ListParser::new(matcher, names);
    let mut lexer = Lexer::new(text);
    while let Some(item) = lexer.next()? {
        if parse_instruction(item, &list)?.is_some() {
            return Err(ParseError::new(format!("{} is for flows only", item.key)));
        }
        if item.key != "drop" {
            list.item(item)?;
        }
    }
    list.finish("packet")
}

/// Where plain actions stand in the order of execution: as apply-actions.
const ACTIONS_RANK: u8 = 1;

/// The instruction that an item is, `None` if it is an action. `list` has the actions before it.
fn parse_instruction(
    item: Item<'_>,
    list: &ListParser<'_>,
) -> Result<Option<Instruction>, ParseError> {
    let Item { key, value } = item;
    let number = |max: u128| parse_number(key, required(key, value, "a number")?, max);
    Ok(Some(match key {
        "goto_table" => Instruction::GotoTable(number(254)? as u8),
        "meter" => Instruction::Meter(number(u128::from(u32::MAX))? as u32),
        "clear_actions" => Instruction::ClearActions,
        "write_metadata" => {
            let text = required(key, value, "a number")?;
            let (metadata, mask) = text.split_once('/').unwrap_or((text, "0xffffffffffffffff"));
            let number = |text| parse_number(key, text, u128::from(u64::MAX));
            let (metadata, mask) = (number(metadata)? as u64, number(mask)? as u64);
            Instruction::WriteMetadata { metadata, mask }
        }
        "write_actions" => {
            let text = value.ok_or_else(|| {
                ParseError::new("write_actions needs a list: write_actions(ACTIONS)")
            })?;
            Instruction::WriteActions(list.parse_set(text)?)
        }
        "apply_actions" => {
            return Err(ParseError::new("apply_actions is what a plain list of actions means"));
        }
        _ => return Ok(None),
    }))
}
