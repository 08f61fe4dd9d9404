//! The shapes of bodies, for the OpenAPI documents. Names are those of the contract of tapes.
//!
//! A shape is a list of members `name: kind`, with `?` behind the name of one that may be missing. A kind
//! is `string`, `time`, `uuid`, `int`, `number`, `bool`, `object`, `any`, the name of a shape, or one of
//! these in brackets for a list, in braces for a map.

use serde_json::{Map, Value, json};

const SHAPES: &[(&str, &str)] = &[
    ("ErrorResponse", "error: string"),
    (
        "StatsResponse",
        "session_count: int, turn_count: int, completed_count: int, total_cost: number, input_tokens: int,
         output_tokens: int, total_duration_ms: int, tool_calls: int",
    ),
    ("SessionListResponse", "items: [SessionItem], next_cursor?: string"),
    ("SessionDetailResponse", "session: SessionItem"),
    (
        "SessionItem",
        "id: uuid, harness_id: string, harness_session_id: string, cwd?: string, harness_version?: string,
         parent_session_id?: uuid, started_at: time, last_seen_at: time, ended_at?: time,
         harness_metadata?: object, auth_subject?: string, name?: string, display_name?: string,
         display_title: string, live: bool, rollup: SessionRollup",
    ),
    (
        "SessionRollup",
        "status: string, title?: string, preview?: string, turn_count: int, model?: string,
         model_usage?: [ModelUsage], kind_counts: {int}, tasks: [TreeTask], usage: SessionUsage",
    ),
    (
        "ModelUsage",
        "model: string, calls: int, input_tokens: int, output_tokens: int, cost_usd: number",
    ),
    (
        "TreeTask",
        "id: string, subject: string, description?: string, status: string, updates: int",
    ),
    ("SessionUsage", "input_tokens: int, output_tokens: int, cost_usd: number"),
    ("sessionUpdateRequest", "display_name: any"),
    (
        "SessionTracesResponse",
        "schema: string, session: SessionItem, traces: [TraceWithSpans], links: [SpanLinkItem]",
    ),
    ("TraceWithSpans", "trace: TraceItem, spans: [SpanItem]"),
    ("TraceListResponse", "schema: string, items: [TraceItem]"),
    (
        "TraceDetail",
        "schema: string, trace: TraceItem, spans: [SpanItem], links?: [SpanLinkItem]",
    ),
    (
        "TraceItem",
        "trace_id: string, user_prompt: string, response_preview?: string, status: string, source: string,
         started_at: time, ended_at?: time, duration_ns: int, span_count: int, usage: TraceUsage,
         main_usage: MainUsage, synthetic?: string",
    ),
    (
        "TraceUsage",
        "input_tokens: int, output_tokens: int, cache_read_tokens: int, cache_creation_tokens: int,
         cost_usd: number",
    ),
    ("MainUsage", "input_tokens: int, output_tokens: int"),
    (
        "SpanItem",
        "trace_id: string, span_id: string, parent_span_id?: string, seq: int, kind: string, name: string,
         status: string, started_at: time, duration_ns: int, call_kind: string, model: string,
         stop_reason: string, thread_id: string, raw_turn_id?: int, verdict: any, input: [object],
         output: [object], usage: object, payload?: string",
    ),
    (
        "SpanLinkItem",
        "kind: string, from_trace_id: string, from_span_id: string, from_io?: string, to_trace_id: string,
         to_span_id: string, to_io?: string",
    ),
    ("RawTurnListResponse", "items: [RawTurnHeaderItem]"),
    (
        "RawTurnHeaderItem",
        "id: int, source: string, provider?: string, agent_name?: string, request_id?: string,
         received_at: time, meta?: object, request_bytes: int, response_bytes: int",
    ),
    ("SpanSearchArguments", "query: string, top_k?: int"),
    ("SpanSearchOutput", "query: string, results: [SpanSearchResult], count: int"),
    (
        "SpanSearchResult",
        "session_id: string, trace_id: string, span_id: string, score: number, model: string,
         started_at: time, user_prompt: string, snippet: string",
    ),
    ("seedDemoRequest", "overwrite?: bool"),
    (
        "SeedResult",
        "sessions: int, raw_turns: int, raw_turns_inserted: int, raw_turns_deduped: int",
    ),
    ("deriveRunResponse", "orgs: {RederiveReport}"),
    ("RederiveReport", "raw_turns: int, parsed_turns: int, nodes: int"),
    (
        "RawTurnAttributionRepairRequest",
        "raw_turn_id?: int, paper_proxy_request_id?: string, harness_id: string,
         harness_session_id: string, thread_id?: string, parent_harness_session_id?: string, reason: string",
    ),
    (
        "RawTurnAttributionRepairResult",
        "recorded: bool, previous: RawTurnAttribution, effective: RawTurnAttribution,
         projections_pending?: [RepairPendingSession]",
    ),
    (
        "RawTurnAttribution",
        "raw_turn_id: int, harness_id: string, harness_session_id: string, thread_id: string,
         parent_harness_session_id?: string",
    ),
    ("RepairPendingSession", "harness_id: string, harness_session_id: string"),
    ("Discovery", "contract_version: string, cassettes: [object], problems: [object]"),
    ("MCPRequest", "jsonrpc: string, id?: any, method: string, params?: object"),
    ("MCPResponse", "jsonrpc: string, id?: any, result?: any, error?: MCPError"),
    ("MCPError", "code: int, message: string"),
    ("IngestAck", "status: string"),
    (
        "TranscriptAck",
        "status: string, deduped: bool, records: int, agent_id?: string",
    ),
    (
        "IngestTurn",
        "provider: string, agent_name?: string, request: any, response?: any, raw_response?: string,
         raw_response_encoding?: string, raw_response_withheld?: bool, meta?: object, session?: object",
    ),
    (
        "IngestTranscript",
        "session: object, agent_id?: string, agent_type?: string, description?: string,
         tool_use_id?: string, kind?: string, records: [object]",
    ),
];

/// A kind as JSON Schema (OpenAPI 3.0's dialect).
fn kind(text: &str) -> Value {
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return json!({"type": "array", "items": kind(inner)});
    }
    if let Some(inner) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        return json!({"type": "object", "additionalProperties": kind(inner)});
    }
    match text {
        "string" => json!({"type": "string"}),
        "time" => json!({"type": "string", "format": "date-time"}),
        "uuid" => json!({"type": "string", "format": "uuid"}),
        "int" => json!({"type": "integer", "format": "int64"}),
        "number" => json!({"type": "number"}),
        "bool" => json!({"type": "boolean"}),
        "object" => json!({"type": "object"}),
        "any" => json!({}),
        name => reference(name),
    }
}

/// A reference to a shape.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// All shapes as component schemas.
pub(super) fn components() -> Map<String, Value> {
    SHAPES
        .iter()
        .map(|(name, members)| {
            let mut properties = Map::new();
            let mut required = Vec::new();
            for member in members.split(',') {
                let (member, text) = member.split_once(':').unwrap_or((member, "any"));
                let (member, text) = (member.trim(), text.trim());
                let bare = member.trim_end_matches('?');
                if bare == member {
                    required.push(bare);
                }
                properties.insert(bare.to_owned(), kind(text));
            }
            let shape = json!({"type": "object", "required": required, "properties": properties});
            ((*name).to_owned(), shape)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_is_there() {
        let all = components();
        let text = Value::Object(all.clone()).to_string();
        let used = text.split("#/components/schemas/").skip(1);
        for name in used.map(|t| t.split('"').next().unwrap_or_default()) {
            assert!(all.contains_key(name), "{name}");
        }
        assert_eq!(
            all["TraceDetail"]["required"],
            json!(["schema", "trace", "spans"])
        );
    }
}
