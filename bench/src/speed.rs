//! placeholder
use anyhow::Result;
pub(crate) fn run(_: &[String]) -> Result<()> {
    Ok(())
}
