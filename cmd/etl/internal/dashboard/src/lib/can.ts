import type { Pipeline, State } from "../api/types";

/** Action is what can be asked of a pipeline. */
export type Action = "start" | "resume" | "pause" | "restart" | "stop" | "cancel" | "checkpoint" | "savepoint" | "skip" | "delete";

const allowed: Record<State, readonly Action[]> = {
  invalid: ["delete"],
  starting: ["pause", "stop", "cancel", "delete"],
  running: ["checkpoint", "savepoint", "pause", "restart", "stop", "cancel", "delete"],
  restarting: ["pause", "restart", "stop", "cancel", "skip", "delete"],
  stopping: ["cancel"],
  paused: ["resume", "cancel", "delete"],
  stopped: ["start", "delete"],
  finished: ["start", "delete"],
  failed: ["start", "skip", "cancel", "delete"],
};

/** actionsOf are what makes sense in the pipeline's state, the most likely first. */
export function actionsOf(p: Pick<Pipeline, "state">): readonly Action[] {
  return allowed[p.state] ?? [];
}
