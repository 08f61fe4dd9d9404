//! Messages in one provider-neutral shape: what a request asks and what a response answers.
//!
//! The JSON spelling of these types is the stored and served form: every member except `type`
//! is left out when it is empty.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Reads `null` as the type's default, as every reader of this format does.
fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

fn is_false(b: &bool) -> bool {
    !*b
}

fn is_empty_value(v: &Option<Value>) -> bool {
    match v {
        None | Some(Value::Null) => true,
        Some(Value::String(s)) => s.is_empty(),
        Some(Value::Array(a)) => a.is_empty(),
        Some(Value::Object(o)) => o.is_empty(),
        Some(_) => false,
    }
}

/// One piece of a message: a text, a tool call, a tool result, an image, a thought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentBlock {
    /// `text`, `image`, `tool_use`, `tool_result`, `thinking`, … or an upstream type kept as it is.
    #[serde(rename = "type", deserialize_with = "null_default")]
    pub kind: String,
    /// Text of a text, refusal or unknown block.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub text: String,
    /// Address of an image.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub image_url: String,
    /// Bytes of an image, base64.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub image_base64: String,
    /// Media type of an image.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub media_type: String,
    /// The provider's id of a tool call.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_use_id: String,
    /// Name of the called tool.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_name: String,
    /// Arguments of a tool call.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub tool_input: Map<String, Value>,
    /// The tool call that a result answers.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_result_id: String,
    /// What a tool answered, as text.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_output: String,
    /// Whether a tool result reports a failure.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_false")]
    pub is_error: bool,
    /// Text of a thinking block.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub thinking: String,
    /// The provider's signature of a thinking block.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub thinking_signature: String,
    /// Raw JSON of items that have no neutral shape.
    #[serde(skip_serializing_if = "is_empty_value")]
    pub content: Option<Value>,
}

impl ContentBlock {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            kind: "text".into(),
            text: text.into(),
            ..Self::default()
        }
    }

    /// A block of another type without any member yet.
    pub fn of(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            ..Self::default()
        }
    }

    /// Whether this is a call of a tool (the client's or the provider's own).
    pub fn is_tool_use(&self) -> bool {
        self.kind == "tool_use" || self.kind == "server_tool_use"
    }

    /// Whether this is the result of a tool call.
    pub fn is_tool_result(&self) -> bool {
        self.kind == "tool_result"
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[serde(deserialize_with = "null_default")]
    pub role: String,
    /// The pieces of the message, in order.
    #[serde(deserialize_with = "null_default")]
    pub content: Vec<ContentBlock>,
}

/// Tokens and durations of one call.
///
/// `prompt_tokens` is the total input, both cache counters included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All input tokens, cached ones included.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub prompt_tokens: i64,
    /// Output tokens.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub completion_tokens: i64,
    /// Input and output tokens together.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub total_tokens: i64,
    /// Input tokens written to the provider's cache.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub cache_creation_input_tokens: i64,
    /// Input tokens read from the provider's cache.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub cache_read_input_tokens: i64,
    /// Duration of the whole call, nanoseconds.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub total_duration_ns: i64,
    /// Duration of reading the prompt, nanoseconds.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub prompt_duration_ns: i64,
}

/// A provider's answer, reduced to one message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatResponse {
    /// The model that answered.
    #[serde(deserialize_with = "null_default")]
    pub model: String,
    /// When the answer was complete, RFC 3339; "" = unknown.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub created_at: String,
    /// The answer.
    #[serde(deserialize_with = "null_default")]
    pub message: Message,
    /// Whether the provider said that the answer is complete.
    #[serde(deserialize_with = "null_default")]
    pub done: bool,
    /// Why the model stopped.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub stop_reason: String,
    /// Tokens and durations; absent when the provider told none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Further facts: message id, errors met while reducing.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub extra: Map<String, Value>,
    /// The provider's own body, where the reducer keeps it.
    #[serde(skip_serializing_if = "is_empty_value")]
    pub raw_response: Option<Value>,
}

impl ChatResponse {
    /// Whether a producer sent nothing: the zero object, `null` and a missing member are the same.
    pub fn is_absent(&self) -> bool {
        self.model.is_empty()
            && self.message.role.is_empty()
            && self.message.content.is_empty()
            && !self.done
            && self.stop_reason.is_empty()
            && self.usage.is_none()
    }

    /// Whether something can be derived from it.
    pub fn is_usable(&self) -> bool {
        !self.message.role.is_empty() && !self.message.content.is_empty()
    }
}

/// A provider request, as far as derivation reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// Messages in order.
    pub messages: Vec<Message>,
    /// System prompt outside of the messages.
    pub system: String,
    /// How many tools were offered.
    pub tools: usize,
    /// Output limit; Anthropic requests always have one (absent = 0).
    pub max_tokens: Option<i64>,
    /// Whether streaming was asked for; `None` = not said.
    pub stream: Option<bool>,
    /// Raw `tool_choice` of a Responses request.
    pub tool_choice: Option<Value>,
    /// Whether this is an OpenAI Responses request.
    pub responses_endpoint: bool,
    /// The model asked for.
    pub model: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_members_are_left_out_and_null_reads_as_empty() {
        let b: ContentBlock = serde_json::from_value(json!({
            "type": "tool_use", "text": null, "tool_use_id": "t1", "tool_input": {}, "is_error": false
        }))
        .expect("block");
        assert_eq!(
            serde_json::to_value(&b).expect("json"),
            json!({"type": "tool_use", "tool_use_id": "t1"})
        );
        assert!(serde_json::from_value::<ContentBlock>(json!({"type": 3})).is_err());
    }

    #[test]
    fn the_zero_response_is_absent() {
        let r: ChatResponse =
            serde_json::from_value(json!({"extra": {"a": 1}, "created_at": "x"})).expect("resp");
        assert!(r.is_absent());
    }
}
