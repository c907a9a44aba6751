//! What the tables can match and do, as TABLE_FEATURES says it.

use tollgate_openflow::Field;
use tollgate_openflow::table_features::{PipelineFeatures, TableFeatures};

use super::limits::TABLES;

/// OFPIT_GOTO_TABLE, WRITE_METADATA, WRITE_ACTIONS, APPLY_ACTIONS, CLEAR_ACTIONS, METER (OpenFlow
/// 1.3.5, section 7.2.4).
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];
/// OFPAT_OUTPUT, PUSH_VLAN, POP_VLAN, SET_NW_TTL, DEC_NW_TTL, SET_FIELD (section 7.2.5).
const ACTIONS: [u16; 6] = [0, 17, 18, 23, 24, 25];

/// The features of every table, each of which takes so many rules.
pub(super) fn table_features(rules: usize) -> Vec<TableFeatures> {
    let settable: Vec<Field> =
        Field::ALL.iter().copied().filter(|field| field.info().settable).collect();
    let features = PipelineFeatures {
        tables: TABLES,
        max_entries: u32::try_from(rules).unwrap_or(u32::MAX),
        instructions: &INSTRUCTIONS,
        actions: &ACTIONS,
        match_fields: Field::ALL,
        set_fields: &settable,
        metadata: u64::MAX,
    };
    // Without names, as in OVS: with one, ovs-ofctl writes it instead of the number.
    (0..TABLES).map(|table| features.table(table, "")).collect()
}
