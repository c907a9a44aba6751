//! `ofp_table_features` (OF 1.3.5 §7.3.5.5): what a table can match and do.

use crate::error::{DecodeError, ErrorCode};
use crate::field::{Field, ONF_EXPERIMENTER, OXM_CLASS_EXPERIMENTER};
use crate::limits::TABLE_NAME_BYTES;
use crate::wire::{Pad, Reader, Writer};

/// The features of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFeatures {
    /// Which table.
    pub table_id: u8,
    /// Its name, at most 31 bytes.
    pub name: String,
    /// Metadata bits it can match.
    pub metadata_match: u64,
    /// Metadata bits it can write.
    pub metadata_write: u64,
    /// `OFPTC_*` bits; zero in OpenFlow 1.3.
    pub config: u32,
    /// How many flows it can hold.
    pub max_entries: u32,
    /// Instructions, actions and fields it supports.
    pub properties: Vec<TableProperty>,
}

/// One list of what a table supports, as it stands on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableProperty {
    /// `OFPTFPT_*`.
    pub kind: u16,
    /// The list, encoded.
    pub body: Vec<u8>,
}

const OFPTFPT_INSTRUCTIONS: u16 = 0;
const OFPTFPT_NEXT_TABLES: u16 = 2;
const OFPTFPT_WRITE_ACTIONS: u16 = 4;
const OFPTFPT_APPLY_ACTIONS: u16 = 6;
const OFPTFPT_MATCH: u16 = 8;
const OFPTFPT_WILDCARDS: u16 = 10;
const OFPTFPT_WRITE_SETFIELD: u16 = 12;
const OFPTFPT_APPLY_SETFIELD: u16 = 14;

/// What the tables of a switch have in common, from which each table's features follow.
#[derive(Clone, Debug)]
pub struct PipelineFeatures<'a> {
    /// Number of tables.
    pub tables: u8,
    /// Flows that a table can hold.
    pub max_entries: u32,
    /// Instruction types (`OFPIT_*`).
    pub instructions: &'a [u16],
    /// Action types (`OFPAT_*`).
    pub actions: &'a [u16],
    /// Fields that can be matched.
    pub match_fields: &'a [Field],
    /// Fields that can be set.
    pub set_fields: &'a [Field],
    /// Metadata bits that can be matched and written.
    pub metadata: u64,
}

impl PipelineFeatures<'_> {
    /// The features of one table of such a pipeline. A miss can do all that a match can, so the
    /// `_MISS` lists are left out (§7.3.5.5.2).
    pub fn table(&self, table_id: u8, name: &str) -> TableFeatures {
        let list = |kind, write: &dyn Fn(&mut Writer)| {
            let mut out = Writer::default();
            write(&mut out);
            TableProperty { kind, body: out.bytes }
        };
        let types = |types: &[u16], out: &mut Writer| {
            types.iter().for_each(|kind| out.element(*kind, Pad::None, |_| {}));
        };
        let oxm = |fields: &[Field], out: &mut Writer| {
            fields.iter().for_each(|field| oxm_id(*field, out));
        };
        let maskable: Vec<Field> =
            self.match_fields.iter().copied().filter(|field| field.info().maskable).collect();
        TableFeatures {
            table_id,
            name: name.to_owned(),
            metadata_match: self.metadata,
            metadata_write: self.metadata,
            config: 0,
            max_entries: self.max_entries,
            properties: vec![
                list(OFPTFPT_INSTRUCTIONS, &|out| types(self.instructions, out)),
                list(OFPTFPT_NEXT_TABLES, &|out| {
                    (table_id.saturating_add(1)..self.tables).for_each(|next| out.u8(next));
                }),
                list(OFPTFPT_WRITE_ACTIONS, &|out| types(self.actions, out)),
                list(OFPTFPT_WRITE_SETFIELD, &|out| oxm(self.set_fields, out)),
                list(OFPTFPT_APPLY_ACTIONS, &|out| types(self.actions, out)),
                list(OFPTFPT_APPLY_SETFIELD, &|out| oxm(self.set_fields, out)),
                list(OFPTFPT_MATCH, &|out| oxm(self.match_fields, out)),
                list(OFPTFPT_WILDCARDS, &|out| oxm(&maskable, out)),
            ],
        }
    }
}

/// An OXM header that names a field.
fn oxm_id(field: Field, out: &mut Writer) {
    let info = field.info();
    let experimenter = info.class == OXM_CLASS_EXPERIMENTER;
    out.u16(info.class);
    out.u8(info.number << 1);
    out.u8(info.bytes + if experimenter { 4 } else { 0 });
    if experimenter {
        out.u32(ONF_EXPERIMENTER);
    }
}

impl TableFeatures {
    pub(crate) fn encode(&self, out: &mut Writer) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table_id);
        out.zeros(5);
        out.string(&self.name, TABLE_NAME_BYTES);
        out.u64(self.metadata_match);
        out.u64(self.metadata_write);
        out.u32(self.config);
        out.u32(self.max_entries);
        for property in &self.properties {
            out.element(property.kind, Pad::Uncounted, |out| out.put(&property.body));
        }
        out.set_length(start, start);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<TableFeatures, DecodeError> {
        let length = usize::from(input.u16()?);
        let rest = length.checked_sub(2).ok_or(DecodeError::new(
            ErrorCode::OFPTFFC_BAD_LEN,
            "table features shorter than their header",
        ))?;
        let mut body = input.part(rest, ErrorCode::OFPTFFC_BAD_LEN)?;
        let table_id = body.u8()?;
        body.skip(5)?;
        let mut features = TableFeatures {
            table_id,
            name: body.string(TABLE_NAME_BYTES)?,
            metadata_match: body.u64()?,
            metadata_write: body.u64()?,
            config: body.u32()?,
            max_entries: body.u32()?,
            properties: Vec::new(),
        };
        while !body.is_empty() {
            let (kind, mut list) = body.element(Pad::Uncounted)?;
            features.properties.push(TableProperty { kind, body: list.rest().to_vec() });
        }
        Ok(features)
    }
}
