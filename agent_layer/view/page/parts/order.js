// A button that changes something: it says first what will happen, and to what, and asks for a name.
import { html, useEffect, useRef, useState } from "../core/ui.js";
import { order, unlock, useRights, writerName } from "../core/writes.js";

/** @typedef {{name: string, label: string, kind?: "text" | "number" | "password" | "checkbox", value?: string | number | boolean | null, isOptional?: boolean, step?: string}} Field */
/** @typedef {Record<string, string | number | boolean>} Values */

/** A button with its dialog. @param {{label: string, title: string, told: any, verb: string, fields?: Field[], act: (values: Values, by: string) => Promise<unknown>, isDisabled?: boolean, name?: string}} props */
export function AskFirst({ label, title, told, verb, fields = [], act, isDisabled = false, name }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [state, setState] = useState({ isOpen: false, isBusy: false, error: "" });
  const open = () => setState({ isOpen: true, isBusy: false, error: "" });
  useEffect(() => void (state.isOpen && dialog.current?.showModal()), [state.isOpen]);
  const close = () => dialog.current?.close();
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    setState({ isOpen: true, isBusy: true, error: "" });
    try {
      await act(valuesOf(form, fields), /** @type {HTMLInputElement} */ (form.elements.namedItem("by")).value.trim());
      close();
    } catch (error) {
      setState({ isOpen: true, isBusy: false, error: /** @type {Error} */ (error).message });
    }
  };
  return html`<button class="button" onClick=${open} disabled=${isDisabled} aria-haspopup="dialog" data-order=${name ?? label}>${label}</button>
    ${state.isOpen && html`<dialog ref=${dialog} aria-label=${title} onClose=${() => setState({ isOpen: false, isBusy: false, error: "" })}><form class="order" onSubmit=${submit}>
      <h2>${title}</h2><p class="told">${told}</p>${fields.map((one) => html`<${Input} key=${one.name} field=${one} />`)}
      <label>Your name<input class="field" name="by" required maxlength="64" defaultValue=${writerName()} autocomplete="name" /></label>
      ${state.error && html`<p class="note-box bad small" role="alert">${state.error}</p>`}
      <p class="chips"><button class="button primary" type="submit" disabled=${state.isBusy}>${state.isBusy ? "Please wait …" : verb}</button><button class="button" type="button" onClick=${close}>Cancel</button></p>
    </form></dialog>`}`;
}

/** @param {{field: Field}} props */
function Input({ field }) {
  const { name, label, kind = "text", value, isOptional = false, step } = field;
  if (kind === "checkbox") return html`<label class="check"><input type="checkbox" name=${name} defaultChecked=${Boolean(value)} />${label}</label>`;
  return html`<label>${label}<input class="field" name=${name} type=${kind} step=${step ?? (kind === "number" ? "any" : undefined)} required=${!isOptional} defaultValue=${value ?? ""} autocomplete="off" /></label>`;
}

/** What was filled in; fields that are empty are left out. @param {HTMLFormElement} form @param {Field[]} fields @returns {Values} */
function valuesOf(form, fields) {
  const entries = fields.map(({ name, kind }) => {
    const input = /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
    return [name, kind === "checkbox" ? input.checked : kind === "number" && input.value !== "" ? Number(input.value) : input.value];
  });
  return Object.fromEntries(entries.filter(([, value]) => value !== ""));
}

/** A button for an order to the server; nothing for who may not give it.
 * @param {{label: string, title: string, told: any, verb: string, path: string[], body?: object, fields?: Field[], isDisabled?: boolean, name?: string, onDone?: () => void}} props */
export function OrderButton({ path, body = {}, onDone, ...rest }) {
  const { may_write: mayWrite } = useRights();
  /** @param {Values} values @param {string} by */
  const act = async (values, by) => {
    await order(path, { ...body, ...values }, by);
    onDone?.();
  };
  return mayWrite ? html`<${AskFirst} ...${rest} act=${act} />` : null;
}

/** For who may not write yet, on a server that takes writes: the operator's key. */
export function Unlock() {
  const rights = useRights();
  if (!rights.takes_writes) return null;
  if (rights.may_write) return html`<span class="badge warn wide-only" title="What you do here changes the store">may write</span>`;
  const fields = /** @type {Field[]} */ ([{ name: "key", label: "The operator's key", kind: "password" }]);
  return html`<${AskFirst} label="Unlock" title="Write as operator" verb="Unlock" fields=${fields} told="This server takes rewards, pauses and retries from an operator. The address that it printed at its start opens this, too. The key becomes a cookie that stands for it until you close the browser." act=${(/** @type {Values} */ values, /** @type {string} */ by) => unlock(String(values.key), by)} />`;
}
