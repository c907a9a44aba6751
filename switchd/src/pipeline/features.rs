//! What the tables can match and do, as TABLE_FEATURES says it.

use tollgate_openflow::Field;
use tollgate_openflow::table_features::{PipelineFeatures, TableFeatures};

use super::limits::{RULES_PER_TABLE, TABLES};
use super::{compile, matching};

/// OFPIT_GOTO_TABLE, WRITE_METADATA, WRITE_ACTIONS, APPLY_ACTIONS, CLEAR_ACTIONS (OpenFlow 1.3.5,
/// section 7.2.4).
const INSTRUCTIONS: [u16; 5] = [1, 2, 3, 4, 5];
/// OFPAT_OUTPUT, PUSH_VLAN, POP_VLAN, DEC_NW_TTL, SET_FIELD (section 7.2.5).
const ACTIONS: [u16; 5] = [0, 17, 18, 24, 25];

/// The features of every table.
pub fn table_features() -> Vec<TableFeatures> {
    let fields = |wanted: fn(Field) -> bool| -> Vec<Field> {
        Field::ALL.iter().copied().filter(|field| wanted(*field)).collect()
    };
    let features = PipelineFeatures {
        tables: TABLES,
        max_entries: RULES_PER_TABLE as u32,
        instructions: &INSTRUCTIONS,
        actions: &ACTIONS,
        match_fields: &fields(matching::can_match),
        set_fields: &fields(compile::can_set),
        metadata: u64::MAX,
    };
    // Without names, as in OVS: with one, ovs-ofctl writes it instead of the number.
    (0..TABLES).map(|table| features.table(table, "")).collect()
}
