package main

import (
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
)

// The official packages that what is said here was held against. A newer one may know more: look at what its types have
// gained before the number is changed.
var versions = map[string]string{
	"github.com/anthropics/anthropic-sdk-go": "v1.84.0",
	"google.golang.org/genai":                "v1.77.0",
	"github.com/cohere-ai/cohere-go/v2":      "v2.15.3",
	"github.com/openai/openai-go/v3":         "v3.90.0",
}

func TestTheOfficialPackagesAreTheOnesThatAreNamed(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test does not know what it is built from")
	}
	found := map[string]string{}
	for _, module := range info.Deps {
		if versions[module.Path] != "" {
			found[module.Path] = module.Version
			t.Log(module.Path, module.Version)
		}
	}
	if !reflect.DeepEqual(found, versions) {
		t.Errorf("built with %v", found)
	}
}

// unknown lists the members of an answer that the official types do not know, wherever they are.
func unknown(answer any) (out []string) {
	seen(reflect.ValueOf(answer), "", func(place string, names []string) {
		for _, name := range names {
			out = append(out, strings.TrimPrefix(place+"."+name, "."))
		}
	})
	return out
}

// seen walks through an official answer and hands over the unknown members that its parts keep.
func seen(v reflect.Value, place string, found func(string, []string)) {
	switch v.Kind() { //nolint:exhaustive // the other kinds hold nothing
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			seen(v.Elem(), place, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			seen(v.Index(i), place+"[]", found)
		}
	case reflect.Struct:
		if keeper := v.FieldByName("JSON"); keeper.IsValid() && keeper.Kind() == reflect.Struct {
			if extra := keeper.FieldByName("ExtraFields"); extra.IsValid() {
				var names []string
				for _, name := range extra.MapKeys() {
					names = append(names, name.String())
				}
				found(place, names)
			}
		}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Name != "JSON" {
				seen(v.Field(i), place+"."+field.Name, found)
			}
		}
	}
}
