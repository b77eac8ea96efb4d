/** What a finished cell says about an approval. */

import type { IOutput } from '@jupyterlab/nbformat';

import { RECORD_MIME } from './renderer';

/** Whether a cell's outputs end a plan that was approved for a later build. */
export function approvedForLater(outputs: readonly IOutput[]): boolean {
  return outputs.some(output => {
    const data = (output as { data?: Record<string, unknown> }).data;
    const record = data?.[RECORD_MIME] as { receipt?: { reason?: string } | null } | undefined;
    return record?.receipt?.reason === 'approved';
  });
}
