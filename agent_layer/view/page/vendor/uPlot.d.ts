// Types of the vendored file, for `tsc --checkJs` only.
export { default } from "uplot";
