//! Prompts: what a person chooses in a client. Each brings what weft knows along, so that the model need
//! not ask first.

use rmcp::model::{
    ErrorData, GetPromptRequestParams, GetPromptResult, ListPromptsResult, Prompt, PromptArgument,
    PromptMessage, Role,
};
use weft_engine::everything::AllQuery;
use weft_engine::{Engine, now};

use super::{Profile, all};
use crate::all_text::{self, AllShape};
use crate::brief_text;

/// Tokens of what a prompt brings along.
const BUDGET: usize = 1_500;

/// Name, title, description and arguments (name, description, required) of each prompt.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str, bool)],
);

const PROMPTS: [Row; 4] = [
    (
        "brief",
        "Briefing",
        "What was decided about the files at hand, and which decisions are stale",
        &[(
            "files",
            "Paths, with commas; the files that are being changed where none is given",
            false,
        )],
    ),
    (
        "why",
        "Why is it so",
        "Why a file, line or symbol is as it is: commits, agent calls, decisions",
        &[("target", "path, path:line or path::symbol", true)],
    ),
    (
        "recall",
        "Recall",
        "What was said, built and decided about a subject",
        &[("topic", "Words or a question", true)],
    ),
    (
        "record",
        "Record the decision",
        "Record what was decided in this conversation, and why",
        &[],
    ),
];

fn has(profile: Profile, name: &str) -> bool {
    match profile {
        Profile::All => true,
        Profile::Decisions => matches!(name, "brief" | "record"),
        Profile::Spans | Profile::Code => false,
    }
}

/// Whether a profile has any.
pub(super) fn any(profile: Profile) -> bool {
    PROMPTS.iter().any(|p| has(profile, p.0))
}

pub(super) fn list(profile: Profile) -> ListPromptsResult {
    let prompts = PROMPTS
        .iter()
        .filter(|p| has(profile, p.0))
        .map(|(name, title, description, arguments)| {
            let arguments = arguments
                .iter()
                .map(|(n, d, required)| {
                    PromptArgument::new(*n)
                        .with_description(*d)
                        .with_required(*required)
                })
                .collect();
            Prompt::new(*name, Some(*description), Some(arguments)).with_title(*title)
        })
        .collect();
    ListPromptsResult::with_all_items(prompts)
}

pub(super) fn get(
    engine: &Engine,
    profile: Profile,
    asked: &GetPromptRequestParams,
) -> Result<GetPromptResult, ErrorData> {
    let invalid = |text: String| ErrorData::invalid_params(text, None);
    let (name, _, description, known) = PROMPTS
        .iter()
        .find(|p| p.0 == asked.name && has(profile, p.0))
        .ok_or_else(|| invalid(format!("unknown prompt {:?}", asked.name)))?;
    let given = asked.arguments.clone().unwrap_or_default();
    let text = |argument: &str| -> Result<String, ErrorData> {
        let v = given
            .get(argument)
            .and_then(|v| v.as_str())
            .unwrap_or_default();
        let required = known.iter().any(|a| a.0 == argument && a.2);
        if required && v.trim().is_empty() {
            return Err(invalid(format!("the argument {argument:?} is required")));
        }
        Ok(v.trim().to_owned())
    };
    let here =
        std::env::current_dir().map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
    let said = match *name {
        "brief" => {
            let files: Vec<String> = text("files")?
                .split(',')
                .map(|f| f.trim().to_owned())
                .filter(|f| !f.is_empty())
                .collect();
            let b = engine
                .decisions_here(&here)
                .and_then(|d| d.briefing(&here, Some(&files[..]).filter(|f| !f.is_empty())))
                .map_err(|e| invalid(super::tool::hinted(&e, e.hint())))?;
            match brief_text::briefing(&b, BUDGET) {
                empty if empty.is_empty() => format!(
                    "No decision governs these files, and none of the {} in force is stale. Say so in a line.",
                    b.in_force
                ),
                t => format!("Before we go on, this is what was decided. Keep it in mind, and tell me in a few lines what of it matters here.\n\n{t}"),
            }
        }
        "why" => {
            let target = text("target")?;
            let a = all::why(engine, &target, false).map_err(invalid)?;
            format!("Explain why `{target}` is as it is, from this and nothing that you make up. Name commits, sessions and decisions.\n\n{}", a.text)
        }
        "recall" => {
            let topic = text("topic")?;
            let q = AllQuery {
                query: topic.clone(),
                limit: 15,
                folder: Some(here),
                background: true,
                ..AllQuery::default()
            };
            let a = engine
                .search_everything(&q, &mut |_, _, _| {})
                .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
            let shape = AllShape {
                budget: BUDGET,
                json: false,
                explain: false,
                now: now(),
            };
            format!("What do we know about: {topic}? Answer from what weft found; open a reference with the tool `show` where a line is not enough, and name the references that you used.\n\n{}", all_text::search(&topic, &a, shape))
        }
        _ => "Look at this conversation. If something was decided in it about how the code is built, record it with the tool `decide`: the title says what in one line, the rationale why, alternatives what was turned down and why not, files what it governs. Search first with `search_decisions` (or `search`) whether it is decided already; where it replaces another one, name that in supersedes. If nothing was decided, say so and record nothing.".to_owned(),
    };
    Ok(
        GetPromptResult::new(vec![PromptMessage::new_text(Role::User, said)])
            .with_description(*description),
    )
}
