// Types of the vendored file, for `tsc --checkJs` only; the packages come with tests/makes/node.
export { h, render, Component, createContext } from "preact";
export * from "preact/hooks";
export function useErrorBoundary(callback?: (error: any) => void): [any, () => void];
export const html: (strings: TemplateStringsArray, ...values: any[]) => any;
