// The one place that imports Preact and htm, so that views name neither.
export {
  html, render, createContext, useContext, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useErrorBoundary,
} from "../vendor/htm-preact.js";
